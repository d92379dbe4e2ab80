// Which replica takes a request. A balancer is one file in balancers/ and one line in balancers.def; the router and the
// simulator run the same objects. Deterministic: what it answers follows from the seed and the calls before.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "tactus/status.h"

namespace tactus::route {

// What is known of a replica when a request is placed.
struct ReplicaView {
  bool ready = true;                 // takes requests
  int32_t outstanding_requests = 0;  // routed there and not ended
  int64_t outstanding_tokens = 0;    // prompt tokens of those
};

struct RouteRequest {
  int32_t prompt_tokens = 0;
};

class Balancer {
 public:
  virtual ~Balancer() = default;
  // Index of the replica, or -1 when none is ready.
  virtual int32_t Pick(const RouteRequest& request, std::span<const ReplicaView> replicas) = 0;
};

struct BalancerInfo {
  const char* name;
  std::unique_ptr<Balancer> (*make)(uint64_t seed);
  const char* help;
};
const std::vector<BalancerInfo>& Balancers();
// kInvalidArgument for an unknown name (lists the known ones).
Result<std::unique_ptr<Balancer>> MakeBalancer(const std::string& name, uint64_t seed);

}  // namespace tactus::route
