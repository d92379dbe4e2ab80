// Parses JSON from clients under limits: depth, number of values, keys of one object, no duplicate keys, valid UTF-8.
// Errors are kInvalidArgument with line and column. Objects keep the client's order of keys (chat templates print
// them). The time is linear in the text; nlohmann's own parser searches all keys of an ordered object for each new one.
// Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::json_text {

// A number of a text that no double represents exactly, so that its parsed value has other digits.
struct RoundedNumber {
  double value = 0;
  std::string text;
};

// An integer of a text beyond 64 bits, which is parsed to a double.
struct LargeInteger {
  int64_t place = 0;  // index of the value: how many values of the text, including objects and lists, begin before it
  std::string text;
};

struct JsonLimits {
  int max_depth = 64;
  int64_t max_values = 2'000'000;
  int64_t max_keys = 16384;  // of one object
  int64_t first_line = 1;    // line of the file where the text begins, for messages
  StopToken stop;            // once set, parsing soon returns kCancelled
  // Gets the first rounded numbers, up to kMostRounded. If set, errors also name a number beyond the range of doubles.
  std::vector<RoundedNumber>* rounded = nullptr;
  static constexpr size_t kMostRounded = 4096;
  std::vector<LargeInteger>* large = nullptr;  // gets the first large integers, up to kMostRounded
};
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// The same for large files of the project or of a model's authors: objects are sorted by key, the last value of a
// duplicate key counts, and only the depth is limited. kInvalidArgument.
Result<SortedJson> ParseSortedJson(std::string_view text);

// The string member of this name; empty if there is none.
std::string TextOf(const Json& object, const char* name);

// A value as text, on one line or indented. Invalid UTF-8 becomes U+FFFD.
std::string JsonText(const Json& value, int indent = -1);

// Appends `text` as a JSON string, quotes included. Invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string* out, std::string_view text);
// The text with every invalid byte sequence replaced, without quotes or escapes.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace tactus::json_text
