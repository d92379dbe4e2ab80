// Paths as clients write them, and what is said of those that lead nowhere. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tactus::api {

// Which process is asked.
enum class Asked { kServer, kRouter };

// The path of the route that is meant: without slashes at its end, with /v1 before what has it in every API, and with
// one of two.
std::string CanonicalPath(std::string_view path);

// Why there is nothing at `path`, and what there is instead. `path`: as it was asked for.
std::string NoRouteText(std::string_view path, Asked asked);

}  // namespace tactus::api
