#include "http/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace tactus::http {
namespace {

// The browser runs the server's own scripts only, and asks this server only.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

const char* TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "image/svg+xml";
}

}  // namespace

bool AnswerPageFile(const HttpRequest& request, std::string_view name, HttpResponse* response) {
  const auto files = PageFiles();
  const auto file = std::find_if(files.begin(), files.end(), [name](const PageFile& f) { return f.name == name; });
  if (file == files.end()) return false;
  const Hash128 hash = SipHash128({}, file->text.data(), file->text.size());
  const std::string tag = fmt::format("\"{:016x}{:016x}\"", hash.low, hash.high);
  response->content_type = TypeOf(name);
  response->headers.emplace_back("ETag", tag);
  response->headers.emplace_back("Cache-Control", "no-cache");  // asked again, and answered by 304
  response->headers.emplace_back("Content-Security-Policy", kPolicy);
  response->headers.emplace_back("X-Content-Type-Options", "nosniff");
  response->headers.emplace_back("Referrer-Policy", "no-referrer");
  const std::string* known = request.Find("If-None-Match");
  if (known != nullptr && known->find(tag) != std::string::npos) {
    response->status = 304;
  } else {
    response->body = file->text;
  }
  return true;
}

}  // namespace tactus::http
