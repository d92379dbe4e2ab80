// Headers that a proxy does not pass on.
#pragma once

#include <string_view>

#include "http/message.h"

namespace tactus::fleet {

// Whether a header belongs to one connection, not to the message (RFC 9110, 7.6.1): by its name, or because a
// Connection header lists it. Also headers that each side writes itself.
bool StaysBehind(const http::Headers& headers, std::string_view name);

}  // namespace tactus::fleet
