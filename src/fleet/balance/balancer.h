// Chooses the replica for a request. A balancer is one file in balancers/ and one line in balancers.def; the router and
// the simulator run the same objects. Deterministic: choices depend on the seed, the calls before and the fleet.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "tactus/status.h"

namespace tactus::fleet {

// State of a replica when a request is placed: what was routed to it from here, and its last report, assuming that
// everything routed since then still waits.
struct ReplicaView {
  bool ready = true;                 // accepts requests
  int32_t outstanding_requests = 0;  // routed to it and not ended
  int64_t outstanding_tokens = 0;    // prompt tokens of those
  int32_t running = 0;               // sequences that hold KV
  int64_t waiting_tokens = 0;        // prompt tokens in its queue
  // Free KV memory, less what its queue will need, less the headroom of its requests of high priority; negative if
  // these exceed it.
  int64_t free_kv_tokens = 0;
  int64_t kv_tokens = 0;      // total; 0: no report yet
  int64_t step_tokens = 0;    // the most that a step computes
  int32_t high_priority = 0;  // requests of high priority on it
};

struct RouteRequest {
  int32_t prompt_tokens = 0;
  std::span<const Hash128> keys = {};  // of its prompt's full blocks, if known
  int32_t block_size = 0;              // tokens of one block
  bool high_priority = false;          // counts towards the headroom (Fleet::SetHeadroom)
};

class PrefixIndex;

// A balancer's view of all replicas.
struct FleetView {
  std::span<const ReplicaView> replicas;
  const PrefixIndex* prefixes = nullptr;  // null: not tracked
  // Recent mean lengths of requests that have ended.
  double prompt_tokens = 0, output_tokens = 0;
};

class Balancer {
 public:
  virtual ~Balancer() = default;
  // Index of the replica, or -1 if none is ready.
  virtual int32_t Pick(const RouteRequest& request, const FleetView& fleet) = 0;
};

struct BalancerInfo {
  const char* name;
  std::unique_ptr<Balancer> (*make)(uint64_t seed);
  bool wants_state;     // uses the replicas' reports, which must then be polled
  bool wants_prefixes;  // uses FleetView::prefixes
  bool moves;           // running sequences move between replicas (fleet/balance/rebalance.h)
  const char* help;
};
const std::vector<BalancerInfo>& Balancers();
// kInvalidArgument for an unknown name (lists the known ones).
Result<const BalancerInfo*> FindBalancer(const std::string& name);

}  // namespace tactus::fleet
