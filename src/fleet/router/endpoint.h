// A replica as seen by the router and the endpoint picker, and the result of a pick.
#pragma once

#include <cstdint>
#include <string>

#include "fleet/balance/fleet.h"
#include "fleet/router/replica_report.h"

namespace tactus::fleet {

struct Picked {
  uint64_t pick = 0;         // its number, for Ended
  int32_t replica = 0;       // its number, which is never reused
  std::string url, address;  // "http://host:port" or https, "host:port"
};

// State of a replica, for people.
struct Endpoint {
  int32_t replica = 0;
  std::string url, address;
  const char* state = "";  // "ready", "starting", "unready", "unreachable", "ejected", "draining", "refused"
  std::string why;         // reason if it is not ready
  bool ready = false, tells_memory = false;
  ReplicaKind kind = ReplicaKind::kUnknown;
  std::string model, version;
  ReplicaView view;
  int64_t waiting_requests = 0, requests = 0, failures = 0, ejections = 0;
};

}  // namespace tactus::fleet
