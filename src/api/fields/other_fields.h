// Fields of a body that its parser does not read: those of other servers, those of other routes, and names that are
// known nowhere. What would change the answer is refused; the rest is named, for a header of the answer. Internal to
// api/. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat/request_parser.h"
#include "api/json.h"
#include "tactus/status.h"

namespace tactus::api {

// `path`: of the body's route. Appends to *ignored the names that are known nowhere. kUnimplemented, kInvalidArgument:
// a field that is known and not taken here; with limits.strict_fields any that would be ignored.
Status ReadOtherFields(const Json& body, std::string_view path, const RequestLimits& limits,
                       std::vector<std::string>* ignored);

}  // namespace tactus::api
