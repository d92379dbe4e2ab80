// Which replica takes a request. A balancer is one file in balancers/ and one line in balancers.def; the router and the
// simulator run the same objects. Deterministic: what it answers follows from the seed, the calls before and the fleet.
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

// What is known of a replica when a request is placed: what this side has routed there, and what the replica said when
// it was last asked (Fleet::Told), with what was routed there since taken to wait still.
struct ReplicaView {
  bool ready = true;                 // takes requests
  int32_t outstanding_requests = 0;  // routed there and not ended
  int64_t outstanding_tokens = 0;    // prompt tokens of those
  int32_t running = 0;               // sequences that hold KV
  int64_t waiting_tokens = 0;        // prompt tokens in its queue
  // KV memory that is free, less what its queue will take, and less the headroom of requests of high priority that are
  // there: below 0 where that is more.
  int64_t free_kv_tokens = 0;
  int64_t kv_tokens = 0;      // all of it; 0: it has not been asked yet
  int64_t step_tokens = 0;    // that a step computes at most
  int32_t high_priority = 0;  // requests of high priority that are there
};

struct RouteRequest {
  int32_t prompt_tokens = 0;
  std::span<const Hash128> keys = {};  // of its prompt's full blocks, where they are known
  int32_t block_size = 0;              // tokens of one
  bool high_priority = false;          // of those that have headroom (Fleet::SetHeadroom)
};

class PrefixIndex;

// What a balancer sees of all replicas.
struct FleetView {
  std::span<const ReplicaView> replicas;
  const PrefixIndex* prefixes = nullptr;  // null: none are kept
  // Lengths of requests that have ended, on average of late.
  double prompt_tokens = 0, output_tokens = 0;
};

class Balancer {
 public:
  virtual ~Balancer() = default;
  // Index of the replica, or -1 when none is ready.
  virtual int32_t Pick(const RouteRequest& request, const FleetView& fleet) = 0;
};

struct BalancerInfo {
  const char* name;
  std::unique_ptr<Balancer> (*make)(uint64_t seed);
  bool wants_state;     // goes by what replicas say, so that they must be asked
  bool wants_prefixes;  // goes by FleetView::prefixes
  bool moves;           // sequences that run move between replicas under it (fleet/balance/rebalance.h)
  const char* help;
};
const std::vector<BalancerInfo>& Balancers();
// kInvalidArgument for an unknown name (lists the known ones).
Result<const BalancerInfo*> FindBalancer(const std::string& name);

}  // namespace tactus::fleet
