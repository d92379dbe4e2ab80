// Writes the calls of the history in the model's format, for templates that do not show calls.
#pragma once

#include <string>

#include "api/tools/tool_formats.h"
#include "base/json.h"

namespace tactus::api {

// A turn's calls as the model writes them, in `format`; as lines of JSON if `format` is null or needs the schemas.
std::string WrittenCalls(const ToolFormat* format, const Json& calls);

}  // namespace tactus::api
