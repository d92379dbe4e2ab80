// Moves sequences between running replicas: away from drained replicas, and, under a balancer that moves sequences,
// from replicas with little free memory to those with much (fleet/balance/rebalance.h decides;
// docs/concepts/migration.md describes the protocol). Replicas receive signed requests; the streams themselves name the
// new replica (fleet/router/forward.h).
//
// Thread rule: the loop's thread. Invariant: a replica has one command at a time.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/fleet_secret.h"
#include "fleet/router/fleet_watch.h"
#include "http/client.h"

namespace tactus::fleet {

// The headers of a request to a replica, with x-tactus-fleet, its signature.
http::Headers SignedHeaders(const FleetKeys& keys, const std::string& method, const std::string& path,
                            const std::string& body);

class Mover {
 public:
  // All references outlive it. `results` counts sequences, "moved" and "failed".
  Mover(const FleetKeys& keys, DurationNs interval_ns, FleetWatch& watch, Clock& clock, http::Loop& loop,
        FleetWatch::Log log, std::map<std::string, int64_t>& results);
  ~Mover();

 private:
  struct Reply;
  void Look();
  void LookLater();
  void Told(const std::string& from, const Status& status, const http::HttpResponse& response);

  const FleetKeys keys_;
  const DurationNs interval_ns_;
  FleetWatch& watch_;
  Clock& clock_;
  http::Loop& loop_;
  const FleetWatch::Log log_;
  std::map<std::string, int64_t>& results_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::map<std::string, std::unique_ptr<http::Client>> busy_;  // by the URL of the source
  std::map<std::string, std::string> said_;                    // why moves of a source last failed
};

}  // namespace tactus::fleet
