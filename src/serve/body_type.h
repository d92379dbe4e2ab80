// Checks of a request's Content-Type and Content-Encoding, before its body is read. Any thread.
#pragma once

#include <optional>
#include <string>

#include "http/access.h"
#include "http/message.h"
#include "serve/routes.h"

namespace tactus::serve {

struct BodyTypeFault {
  int status = 415;
  std::string message, header;
};
// Nothing: the type is right for the route.
std::optional<BodyTypeFault> CheckBodyType(const http::HttpRequest& head, Route route, const http::Origins& origins);

}  // namespace tactus::serve
