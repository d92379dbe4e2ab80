#include "serve/body_type.h"

#include "http/multipart.h"

namespace tactus::serve {
namespace {

bool IsJson(const std::string& content_type) {
  const std::string_view type = std::string_view(content_type).substr(0, content_type.find(';'));
  const size_t end = type.find_last_not_of(' ');
  return end != std::string_view::npos && http::EqualsIgnoreCase(type.substr(0, end + 1), "application/json");
}

}  // namespace

std::optional<BodyTypeFault> CheckBodyType(const http::HttpRequest& head, Route route, const http::Origins& origins) {
  if (const std::string* encoding = head.Find("Content-Encoding");
      encoding != nullptr && !http::EqualsIgnoreCase(*encoding, "identity")) {
    return BodyTypeFault{415, "Content-Encoding: compressed bodies are not supported", "Content-Encoding"};
  }
  const std::string* type = head.Find("Content-Type");
  if (route == Route::kFiles) {
    const auto boundary = http::MultipartBoundary(type == nullptr ? "" : *type);
    if (!boundary.ok()) return BodyTypeFault{415, boundary.status().message(), "Content-Type"};
    // A browser sends a form to any site without a preflight, but with its Origin.
    if (!origins.Allow(head)) return BodyTypeFault{403, "Origin: not allowed to upload (--allowed-origins)", "Origin"};
    return std::nullopt;
  }
  if (route == Route::kBatchCancel && type == nullptr) return std::nullopt;  // it needs no body
  // A browser sends most other types to any site without a preflight.
  if (type == nullptr || !IsJson(*type))
    return BodyTypeFault{415, "Content-Type: give application/json", "Content-Type"};
  return std::nullopt;
}

}  // namespace tactus::serve
