// JSON from clients, read with limits: depth, number of values, no duplicate keys, valid UTF-8. Errors are
// kInvalidArgument with line and column. Objects keep the client's order of keys (chat templates print them). Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "tactus/status.h"

namespace tactus::api {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  int max_depth = 64;
  int64_t max_values = 2'000'000;
};
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Appends `text` as a JSON string, quotes included. Invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string* out, std::string_view text);
// The same as text without quotes or escapes: every invalid byte sequence replaced.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace tactus::api
