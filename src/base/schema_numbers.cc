#include "base/schema_numbers.h"

#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace tactus {
namespace {

using json_text::RoundedNumber;

bool IsNote(const std::string& keyword) {
  return keyword == "default" || keyword == "examples" || keyword == "example";
}

using Rounded = std::unordered_map<double, const RoundedNumber*>;  // the first of each value

const RoundedNumber* Find(const Json& value, const Rounded& rounded) {
  if (value.is_number_float()) {
    const auto found = rounded.find(value.get<double>());
    return found == rounded.end() ? nullptr : found->second;
  }
  if (!value.is_structured()) return nullptr;
  for (const auto& [key, member] : value.items()) {
    if (value.is_object() && IsNote(key)) continue;
    if (const RoundedNumber* found = Find(member, rounded)) return found;
  }
  return nullptr;
}

}  // namespace

Status CheckSchemaNumbers(const Json& value, const std::vector<RoundedNumber>& rounded) {
  constexpr size_t kShownBytes = 60;
  if (rounded.empty()) return Status();
  Rounded by_value;
  for (const RoundedNumber& one : rounded) by_value.try_emplace(one.value, &one);
  const RoundedNumber* found = Find(value, by_value);
  if (found == nullptr) return Status();
  const bool is_long = found->text.size() > kShownBytes;
  return InvalidArgument(fmt::format(
      "the number {}{} has more digits than a number of 64 bits holds, which would make it {}; write that, or a string",
      found->text.substr(0, kShownBytes), is_long ? "..." : "", Json(found->value).dump()));
}

}  // namespace tactus
