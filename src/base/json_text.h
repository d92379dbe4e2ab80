// JSON from clients, read with limits: depth, number of values, keys of one object, no duplicate keys, valid UTF-8.
// Errors are kInvalidArgument with line and column. Objects keep the client's order of keys (chat templates print
// them). The work grows with the text: nlohmann's own parser looks through all keys of an ordered object for each new
// one. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::json_text {

// A number of a text, of which its value has other digits: it is not a double's.
struct RoundedNumber {
  double value = 0;
  std::string text;
};

// An integer of a text beyond 64 bits, which its value holds as a double.
struct LargeInteger {
  int64_t place = 0;  // of the value: how many values of the text begin before it, objects and lists too
  std::string text;
};

struct JsonLimits {
  int max_depth = 64;
  int64_t max_values = 2'000'000;
  int64_t max_keys = 16384;  // of one object
  int64_t first_line = 1;    // of the text in the file that it comes from, for messages
  StopToken stop;            // kCancelled soon after it is set
  // Gets the first of them, up to kMostRounded; an error then names a number that is none of a double.
  std::vector<RoundedNumber>* rounded = nullptr;
  static constexpr size_t kMostRounded = 4096;
  std::vector<LargeInteger>* large = nullptr;  // gets the first of them, up to kMostRounded
};
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// The same for large files that the project or a model's authors wrote: objects sorted by key, of a key that appears
// twice the last value, no limits but that of depth. kInvalidArgument.
Result<SortedJson> ParseSortedJson(std::string_view text);

// The text under this name; empty where there is none.
std::string TextOf(const Json& object, const char* name);

// A value as text, on one line or indented. Invalid UTF-8 becomes U+FFFD.
std::string JsonText(const Json& value, int indent = -1);

// Appends `text` as a JSON string, quotes included. Invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string* out, std::string_view text);
// The same as text without quotes or escapes: every invalid byte sequence replaced.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace tactus::json_text
