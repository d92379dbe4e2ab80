// State of the replicas of a model: health, requests routed to each that have not ended, their last reports of queue
// and memory, and the prefixes routed to them. The simulator and the router each keep one and pass it to the same
// balancers.
//
// Between two reports of a replica nothing is assumed to start or end there: requests routed meanwhile wait and will
// take memory (SAL, 4.2). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/balance/balancer.h"
#include "fleet/balance/prefix_index.h"

namespace tactus::fleet {

// A replica's report.
struct ReplicaState {
  int32_t running = 0;
  int64_t waiting_tokens = 0;
  int64_t free_kv_tokens = 0;  // including cached prefixes without a user
  int64_t kv_tokens = 0;
  int64_t step_tokens = 0;
  int32_t high_priority = 0;  // requests of high priority, running or waiting
};

class Fleet {
 public:
  // kInvalidArgument: an unknown balancer.
  static Result<std::unique_ptr<Fleet>> Create(int32_t replicas, const std::string& balancer, uint64_t seed);

  // Adds a replica; its number is the highest.
  int32_t Add();
  // The replica is a new process: forgets everything known of the old one.
  void Reset(int32_t replica);
  int32_t size() const { return static_cast<int32_t>(views_.size()); }
  const ReplicaView& view(int32_t replica) const { return views_[static_cast<size_t>(replica)]; }
  bool wants_state() const { return info_.wants_state; }
  bool moves_sequences() const { return info_.moves; }
  bool wants_prefixes() const { return info_.wants_prefixes; }

  // Chooses a replica and counts the request there; -1: none is ready.
  int32_t Route(const RouteRequest& request);
  // Counts a request that another router has routed.
  void Routed(int32_t replica, const RouteRequest& request);
  // A counted request has ended, after `output_tokens`; -1: it failed or was refused, which does not count as a length.
  void Ended(int32_t replica, int32_t prompt_tokens, int32_t output_tokens);
  // A replica's report has arrived. `routed_since`: prompt tokens routed to it after the report was requested, which
  // may be missing in it.
  void Told(int32_t replica, const ReplicaState& state, int64_t routed_since = 0);
  void SetReady(int32_t replica, bool ready);
  // Headroom of high priority (Llumnix, OSDI 2024, 4.4, virtual usage): at every replica with requests of high
  // priority, `tokens` of KV memory count as taken, once for all of them. Other requests are placed elsewhere and move
  // away, and steps there stay short. 0: none. Ours: waiting requests have headroom too, so that it applies between two
  // reports.
  void SetHeadroom(int64_t tokens) { headroom_tokens_ = tokens; }

 private:
  Fleet(const BalancerInfo& info, int32_t replicas, uint64_t seed);

  const BalancerInfo info_;
  std::unique_ptr<Balancer> balancer_;
  std::vector<ReplicaView> views_;
  PrefixIndex prefixes_;
  double mean_prompt_, mean_output_;
  int64_t headroom_tokens_ = 0;
};

}  // namespace tactus::fleet
