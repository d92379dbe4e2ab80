// The JSON functions of base/json_text.h, as names of this namespace.
#pragma once

#include <string>
#include <string_view>

#include "base/json_text.h"

namespace tactus::api {

using json_text::AppendJsonString;
using json_text::JsonLimits;
using json_text::ParseJson;
using json_text::ReplaceInvalidUtf8;

// The text as a JSON string.
inline std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(&out, text);
  return out;
}

// Appends a further member of an object: ,"name":"text".
inline void AppendMember(std::string* out, std::string_view name, std::string_view text) {
  *out += ",\"";
  *out += name;
  *out += "\":";
  AppendJsonString(out, text);
}

}  // namespace tactus::api
