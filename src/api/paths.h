// Paths as clients write them, and the error text for paths without a route. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tactus::api {

// The kind of process that received the request.
enum class Asked { kServer, kRouter };

// The path of the route that is meant: trailing slashes removed, /v1 added to the routes that have it in every API, and
// a doubled /v1 reduced to one.
std::string CanonicalPath(std::string_view path);

// Why `path` has no route, and which route to use instead. `path`: as the client sent it.
std::string NoRouteText(std::string_view path, Asked asked);

}  // namespace tactus::api
