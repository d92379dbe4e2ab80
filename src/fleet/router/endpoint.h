// A replica as the router and the endpoint picker know it, and one that was picked for a request.
#pragma once

#include <cstdint>
#include <string>

#include "fleet/balance/fleet.h"
#include "fleet/router/replica_report.h"

namespace tactus::fleet {

struct Picked {
  uint64_t ticket = 0;
  int32_t replica = 0;       // its number, which no other replica ever has
  std::string url, address;  // "http://host:port", "host:port"
};

// What is known of a replica, for people.
struct Endpoint {
  int32_t replica = 0;
  std::string url, address;
  const char* state = "";  // "ready", "starting", "unready", "unreachable", "ejected", "draining", "refused"
  std::string why;         // it is not ready
  bool ready = false, tells_memory = false;
  ReplicaKind kind = ReplicaKind::kUnknown;
  std::string model, version;
  ReplicaView view;
  int64_t waiting_requests = 0, requests = 0, failures = 0, ejections = 0;
};

}  // namespace tactus::fleet
