// The document at /openapi.json: every route, its bodies as their parsers read them (api/fields/field_table.h), its
// answers and errors. Any thread.
#pragma once

#include <string>

#include "api/chat/request_parser.h"

namespace tactus::serve {

std::string OpenApiText(const api::RequestLimits& limits);

}  // namespace tactus::serve
