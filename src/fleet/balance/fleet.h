// What is known of the replicas of a model: health, what was routed where and has not ended, what they said of their
// queues and memory when they were last asked, and which prefixes they were given. The simulator and the router keep
// one and give it to the same balancers.
//
// Between two answers of a replica nothing is taken to have started or ended there: what is routed to it in between
// waits and will take memory (SAL, 4.2). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/balance/balancer.h"
#include "fleet/balance/prefix_index.h"

namespace tactus::fleet {

// What a replica says of itself.
struct ReplicaState {
  int32_t running = 0;
  int64_t waiting_tokens = 0;
  int64_t free_kv_tokens = 0;  // cached prefixes without a user included
  int64_t kv_tokens = 0;
  int64_t step_tokens = 0;
  int32_t high_priority = 0;  // requests of high priority that are there, running or waiting
};

class Fleet {
 public:
  // kInvalidArgument: an unknown balancer.
  static Result<std::unique_ptr<Fleet>> Create(int32_t replicas, const std::string& balancer, uint64_t seed);

  // Another one; its number is the last.
  int32_t Add();
  // Another process stands in this one's place: nothing of what was known is.
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
  // One that was counted has ended, with so many tokens; -1: it failed or was refused, which says nothing of lengths.
  void Ended(int32_t replica, int32_t prompt_tokens, int32_t output_tokens);
  // `routed_since`: prompt tokens routed there after it was asked, which it need not have counted.
  void Told(int32_t replica, const ReplicaState& state, int64_t routed_since = 0);
  void SetReady(int32_t replica, bool ready);
  // Headroom of high priority (Llumnix, OSDI 2024, 4.4, virtual usage): `tokens` of KV memory count as taken at every
  // replica that has requests of high priority, all of them together. Others are placed elsewhere and move away,
  // and steps there stay short. 0: none. Ours: a request that waits there has it too, so that it holds between two
  // answers of a replica.
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
