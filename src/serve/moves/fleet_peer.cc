#include "serve/moves/fleet_peer.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/printable.h"
#include "http/access.h"

namespace tactus::serve {
namespace {

constexpr const char* kPath = "/fleet/import";

struct Kept final : http::ResponseHandler {
  void OnDone(const Status& s, const http::HttpResponse& r, TimeNs) override {
    status = s;
    response = r;
  }
  Status status = Internal("no answer");
  http::HttpResponse response;
};

// Status codes that the caller distinguishes; the rest are errors of the peer.
StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 400:
      return StatusCode::kInvalidArgument;
    case 401:
      return StatusCode::kUnauthenticated;
    case 404:
      return StatusCode::kNotFound;
    case 503:
    case 429:
      return StatusCode::kResourceExhausted;
    default:
      return StatusCode::kUnavailable;
  }
}

std::string WhyOf(const http::HttpResponse& response) {
  const auto json = json_text::ParseJson(response.body);
  if (json.ok() && json->is_object() && json->contains("error") && (*json)["error"].is_object() &&
      (*json)["error"].contains("message") && (*json)["error"]["message"].is_string())
    return (*json)["error"]["message"].get<std::string>();
  return fmt::format("HTTP status {}", response.status);
}

}  // namespace

FleetPeer::FleetPeer(std::string url, http::Url base, const FleetKeys& keys, std::shared_ptr<http::TlsContext> tls,
                     DurationNs timeout_ns, Clock& clock)
    : url_(std::move(url)),
      keys_(keys),
      clock_(clock),
      client_(std::move(base),
              {.connect_timeout_ns = timeout_ns,
               .timeout_ns = timeout_ns,
               .max_response_bytes = 1 << 20,
               .tls = std::move(tls)},
              clock) {}

Result<Json> FleetPeer::Send(const std::string& message) {
  const Hash128 nonce = http::RandomBits();
  http::ClientRequest request;
  request.path = kPath;
  request.headers.emplace_back("Content-Type", "application/octet-stream");
  request.headers.emplace_back(kFleetHeader, SignFleetRequest(keys_, {"POST", kPath, message}, UnixSeconds(), nonce));
  request.body = message;
  auto kept = std::make_shared<Kept>();
  client_.Send(std::move(request), kept);
  client_.Run();
  if (!kept->status.ok())
    return Status(kept->status.code(), fmt::format("replica {}: {}", Printable(url_), kept->status.message()));
  const http::HttpResponse& response = kept->response;
  const auto from = [&](const Status& why) {
    return Status(why.code(), fmt::format("replica {}: {}", Printable(url_), why.message()));
  };
  if (response.status != 200) return from(Status(CodeOf(response.status), Printable(WhyOf(response))));
  const Status genuine = CheckFleetAnswer(keys_, nonce, response.status, response.body, response.Find(kFleetHeader));
  if (!genuine.ok()) return from(genuine);
  auto json = json_text::ParseJson(response.body);
  return json.ok() ? std::move(json) : from(json.status());
}

}  // namespace tactus::serve
