// Finds values of one JSON document by JSON pointer, and members of its objects by name. Objects keep the client's
// order of keys, so nlohmann's own search is linear; here large objects get an index at the first search. The document
// outlives this and does not change. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"

namespace tactus {

class JsonPlaces {
 public:
  explicit JsonPlaces(const Json& root) : root_(root) {}
  JsonPlaces(const JsonPlaces&) = delete;
  JsonPlaces& operator=(const JsonPlaces&) = delete;

  // The target of a pointer (RFC 6901: "" or "/a/0"). Null: no target, or not a pointer.
  const Json* At(std::string_view pointer) {
    const Json* at = &root_;
    while (!pointer.empty() && at != nullptr) {
      if (pointer[0] != '/') return nullptr;
      pointer.remove_prefix(1);
      const std::string_view part = pointer.substr(0, pointer.find('/'));
      pointer.remove_prefix(part.size());
      at = at->is_array() ? Item(*at, part) : MemberAt(*at, part);
    }
    return at;
  }

  // Null: `value` is not an object or has no such member.
  const Json* Member(const Json& value, std::string_view name) {
    constexpr size_t kFew = 16;
    if (!value.is_object()) return nullptr;
    const auto& members = value.get_ref<const Json::object_t&>();
    if (members.size() <= kFew) {
      for (const auto& [key, member] : members) {
        if (key == name) return &member;
      }
      return nullptr;
    }
    const auto [index, is_new] = indexes_.try_emplace(&value);
    if (is_new) {
      index->second.reserve(members.size());
      for (const auto& [key, member] : members) index->second.try_emplace(key, &member);
    }
    const auto found = index->second.find(name);
    return found == index->second.end() ? nullptr : found->second;
  }

 private:
  const Json* MemberAt(const Json& value, std::string_view part) {
    if (part.find('~') == std::string_view::npos) return Member(value, part);
    std::string name;
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] != '~') {
        name += part[i];
        continue;
      }
      const char escaped = ++i < part.size() ? part[i] : '\0';
      if (escaped != '0' && escaped != '1') return nullptr;
      name += escaped == '0' ? '~' : '/';
    }
    return Member(value, name);
  }

  static const Json* Item(const Json& list, std::string_view part) {
    constexpr size_t kMostDigits = 9;
    if (part.empty() || part.size() > kMostDigits || (part.size() > 1 && part[0] == '0')) return nullptr;
    size_t index = 0;
    for (const char c : part) {
      if (c < '0' || c > '9') return nullptr;
      index = index * 10 + static_cast<size_t>(c - '0');
    }
    return index < list.size() ? &list[index] : nullptr;
  }

  const Json& root_;
  std::unordered_map<const Json*, std::unordered_map<std::string_view, const Json*>> indexes_;
};

}  // namespace tactus
