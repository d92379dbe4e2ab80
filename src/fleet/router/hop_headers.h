// Which headers a proxy does not pass on.
#pragma once

#include <string_view>

#include "http/message.h"

namespace tactus::fleet {

// Of one connection, not of the message (RFC 9110, 7.6.1): by its name, or because a Connection header names it. And
// what each side writes for itself.
bool StaysBehind(const http::Headers& headers, std::string_view name);

}  // namespace tactus::fleet
