#include "base/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace tactus {
namespace {

using json_text::RoundedNumber;

bool IsNote(const std::string& keyword) {
  return keyword == "default" || keyword == "examples" || keyword == "example";
}

const RoundedNumber* Find(const Json& value, const std::vector<RoundedNumber>& rounded) {
  if (value.is_number_float()) {
    const auto found = std::find_if(rounded.begin(), rounded.end(),
                                    [&](const RoundedNumber& one) { return one.value == value.get<double>(); });
    return found == rounded.end() ? nullptr : &*found;
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
  const RoundedNumber* found = Find(value, rounded);
  if (found == nullptr) return Status();
  const bool is_long = found->text.size() > kShownBytes;
  return InvalidArgument(fmt::format(
      "the number {}{} has more digits than a number of 64 bits holds, which would make it {}; write that, or a string",
      found->text.substr(0, kShownBytes), is_long ? "..." : "", Json(found->value).dump()));
}

}  // namespace tactus
