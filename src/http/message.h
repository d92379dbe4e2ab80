// HTTP messages as plain data, for the handler of the server and for the client. No Beast in here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tactus::http {

class BodySource;  // http/body_stream.h

using Headers = std::vector<std::pair<std::string, std::string>>;

// Header names compare without case (ASCII).
bool EqualsIgnoreCase(std::string_view a, std::string_view b);
// The first value under this name; null: none.
const std::string* FindHeader(const Headers& headers, std::string_view name);
// The text without spaces and tabs at both ends, as for values of headers.
std::string_view Trimmed(std::string_view text);

struct HttpRequest {
  std::string method;     // "GET", ...
  std::string target;     // as sent: path and query
  std::string path;       // target up to '?'
  std::string authority;  // the requested host with port: from a target in absolute form, else from the Host header
  Headers headers;
  int64_t body_bytes = 0;
  std::string peer;  // the client's address, without port

  const std::string* Find(std::string_view name) const { return FindHeader(headers, name); }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: no such header
  Headers headers;
  std::string body;
  std::shared_ptr<BodySource> source;  // instead of `body`, for answers too large for memory

  const std::string* Find(std::string_view name) const { return FindHeader(headers, name); }
};

// Adds Retry-After to a refusal for now (429, 503), nothing to any other answer.
void AddRetryAfter(HttpResponse* response, int64_t seconds = 1);

const char* ReasonPhrase(int status);

}  // namespace tactus::http
