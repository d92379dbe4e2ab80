// Checks the fields of a body that its parser does not read: fields of other servers, fields of other routes, and
// unknown names. A field that would change the answer is refused; the others are listed in a header of the answer.
// Internal to api/. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat/parsed_request.h"
#include "api/fields/json.h"
#include "tactus/status.h"

namespace tactus::api {

// `path`: the body's route. Appends unknown names to *ignored. kUnimplemented, kInvalidArgument: a known field that
// this route does not take; with limits.strict_fields also any field that would be ignored.
Status ReadOtherFields(const Json& body, std::string_view path, const RequestLimits& limits,
                       std::vector<std::string>* ignored);

}  // namespace tactus::api
