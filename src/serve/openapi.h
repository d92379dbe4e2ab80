// The document at /openapi.json: every route with its answers and errors, and its bodies as recorded from their parsers
// (api/field_table.h). Any thread.
#pragma once

#include <string>

#include "api/chat/parsed_request.h"

namespace tactus::serve {

std::string OpenApiText(const api::RequestLimits& limits);

}  // namespace tactus::serve
