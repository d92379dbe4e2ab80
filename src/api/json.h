// The JSON of base/json_text.h, under the names that api/ has for it.
#pragma once

#include "base/json_text.h"

namespace tactus::api {

using json_text::AppendJsonString;
using json_text::Json;
using json_text::JsonLimits;
using json_text::ParseJson;
using json_text::ReplaceInvalidUtf8;

}  // namespace tactus::api
