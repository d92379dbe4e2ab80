// URLs and server-sent events: the parts of the client that need no sockets.
#include <fmt/format.h>

#include <charconv>

#include "http/client.h"

namespace tactus::http {

Result<Url> ParseUrl(std::string_view text) {
  auto bad = [&](const char* why) {
    return InvalidArgument(fmt::format("'{}': {}; give http://host:port or https://host:port", text, why), "url");
  };
  constexpr std::string_view kScheme = "http://", kTlsScheme = "https://";
  Url url;
  url.tls = text.starts_with(kTlsScheme);
  if (url.tls) url.port = 443;
  if (!url.tls && !text.starts_with(kScheme)) return bad("not an http:// or https:// URL");
  std::string_view rest = text.substr(url.tls ? kTlsScheme.size() : kScheme.size());
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  url.path = slash == std::string_view::npos ? "/" : std::string(rest.substr(slash));
  if (authority.find('@') != std::string_view::npos) return bad("a user name in a URL is not supported");
  std::string_view port;
  if (!authority.empty() && authority.front() == '[') {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("'[' without ']'");
    url.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
  } else {
    const size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon);
  }
  if (url.host.empty()) return bad("no host");
  if (!port.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(port.data() + 1, port.data() + port.size(), number);
    if (port.front() != ':' || error != std::errc() || end != port.data() + port.size() || number < 1 ||
        number > 65535) {
      return bad("the port is not a number from 1 to 65535");
    }
    url.port = static_cast<uint16_t>(number);
  }
  return url;
}

bool SseParser::Feed(std::string_view bytes, const OnData& on_data) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      partial_ += bytes;
      return partial_.size() + data_.size() <= kMostEventBytes;
    }
    std::string_view line = bytes.substr(0, newline);
    bytes.remove_prefix(newline + 1);
    if (partial_.empty()) {
      Line(line, on_data);
    } else {
      std::string whole = std::move(partial_);
      partial_.clear();
      whole += line;
      Line(whole, on_data);
    }
    if (data_.size() > kMostEventBytes) return false;
  }
  return true;
}

void SseParser::Line(std::string_view line, const OnData& on_data) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (line.substr(0, 5) != "data:") return;  // ignores comments, event names and ids
  line.remove_prefix(5);
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace tactus::http
