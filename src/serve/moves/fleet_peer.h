// A client for another replica: signed messages and signed answers over one kept connection. Blocks; each message has a
// time-out. One thread.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fleet_secret.h"
#include "base/json_text.h"
#include "http/client.h"
#include "tactus/status.h"

namespace tactus::serve {

class FleetPeer {
 public:
  // `url` as the router wrote it; `tls` for https.
  FleetPeer(std::string url, http::Url base, const FleetKeys& keys, std::shared_ptr<http::TlsContext> tls,
            DurationNs timeout_ns, Clock& clock);

  const std::string& url() const { return url_; }
  // POST /fleet/import. Returns the peer's answer, or its error with the peer's name. kUnauthenticated: one side does
  // not know the other's secret.
  Result<Json> Send(const std::string& message);

 private:
  const std::string url_;
  const FleetKeys keys_;
  Clock& clock_;
  http::Client client_;
};

}  // namespace tactus::serve
