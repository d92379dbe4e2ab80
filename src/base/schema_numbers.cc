#include "base/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace tactus {
namespace {

using json_text::RoundedNumber;

bool IsOneOf(const std::string& word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

enum class Place : uint8_t {
  kSchema,   // names are keywords; annotations are ignored
  kMembers,  // names are the client's, values are schemas
  kValue,    // a literal value
};

bool IsNote(Place place, const std::string& name) {
  return place == Place::kSchema && IsOneOf(name, {"default", "examples", "example"});
}

Place Below(Place place, const std::string& name) {
  if (place == Place::kValue) return place;
  if (place == Place::kMembers) return Place::kSchema;
  if (IsOneOf(name, {"const", "enum"})) return Place::kValue;
  const bool members =
      IsOneOf(name, {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"});
  return members ? Place::kMembers : Place::kSchema;
}

using Rounded = std::unordered_map<double, const RoundedNumber*>;  // the first text of each value

const RoundedNumber* Find(const Json& value, const Rounded& rounded, Place place) {
  if (value.is_number_float()) {
    const auto found = rounded.find(value.get<double>());
    return found == rounded.end() ? nullptr : found->second;
  }
  if (!value.is_structured()) return nullptr;
  for (const auto& [key, member] : value.items()) {
    if (value.is_object() && IsNote(place, key)) continue;
    const Place below = value.is_object() ? Below(place, key) : place;
    if (const RoundedNumber* found = Find(member, rounded, below)) return found;
  }
  return nullptr;
}

}  // namespace

Status CheckSchemaNumbers(const Json& value, const std::vector<RoundedNumber>& rounded) {
  constexpr size_t kShownBytes = 60;
  if (rounded.empty()) return Status();
  Rounded by_value;
  for (const RoundedNumber& one : rounded) by_value.try_emplace(one.value, &one);
  const RoundedNumber* found = Find(value, by_value, Place::kSchema);
  if (found == nullptr) return Status();
  const bool is_long = found->text.size() > kShownBytes;
  return InvalidArgument(fmt::format(
      "the number {}{} has more digits than a number of 64 bits holds, which would make it {}; write that, or a string",
      found->text.substr(0, kShownBytes), is_long ? "..." : "", Json(found->value).dump()));
}

}  // namespace tactus
