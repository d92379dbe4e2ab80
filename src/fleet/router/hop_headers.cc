#include "fleet/router/hop_headers.h"

#include <algorithm>
#include <array>

namespace tactus::fleet {
namespace {

bool HopByHop(std::string_view name) {
  constexpr std::array<std::string_view, 11> kNames = {"Connection",
                                                       "Keep-Alive",
                                                       "Proxy-Connection",
                                                       "Proxy-Authenticate",
                                                       "Proxy-Authorization",
                                                       "TE",
                                                       "Trailer",
                                                       "Transfer-Encoding",
                                                       "Upgrade",
                                                       "Content-Length",
                                                       "Expect"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view n) { return http::EqualsIgnoreCase(n, name); });
}

bool Lists(std::string_view list, std::string_view name) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (http::EqualsIgnoreCase(http::Trimmed(list.substr(at, end - at)), name)) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

bool StaysBehind(const http::Headers& headers, std::string_view name) {
  return HopByHop(name) || std::any_of(headers.begin(), headers.end(), [name](const auto& header) {
           return http::EqualsIgnoreCase(header.first, "Connection") && Lists(header.second, name);
         });
}

}  // namespace tactus::fleet
