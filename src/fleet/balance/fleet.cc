#include "fleet/balance/fleet.h"

#include <algorithm>

#include "base/check.h"

namespace tactus::fleet {
namespace {

// Mean lengths before any request has ended, and the weight of each that ends: about the last two hundred count.
constexpr double kPriorPrompt = 1024, kPriorOutput = 128, kFollow = 0.01;

// Limit on a replica's remembered tokens, whatever memory it reports.
constexpr int64_t kMostRemembered = int64_t{1} << 26;

}  // namespace

Result<std::unique_ptr<Fleet>> Fleet::Create(int32_t replicas, const std::string& balancer, uint64_t seed) {
  TACTUS_ASSIGN_OR_RETURN(const BalancerInfo* info, FindBalancer(balancer));
  return std::unique_ptr<Fleet>(new Fleet(*info, replicas, seed));
}

Fleet::Fleet(const BalancerInfo& info, int32_t replicas, uint64_t seed)
    : info_(info),
      balancer_(info.make(seed)),
      views_(static_cast<size_t>(replicas)),
      prefixes_(replicas),
      mean_prompt_(kPriorPrompt),
      mean_output_(kPriorOutput) {}

int32_t Fleet::Add() {
  views_.emplace_back();
  prefixes_.Add();
  return size() - 1;
}

void Fleet::Reset(int32_t replica) {
  views_[static_cast<size_t>(replica)] = ReplicaView();
  prefixes_.Clear(replica);
}

int32_t Fleet::Route(const RouteRequest& request) {
  const int32_t replica = balancer_->Pick(request, {.replicas = views_,
                                                    .prefixes = info_.wants_prefixes ? &prefixes_ : nullptr,
                                                    .prompt_tokens = mean_prompt_,
                                                    .output_tokens = mean_output_});
  if (replica >= 0) Routed(replica, request);
  return replica;
}

void Fleet::Routed(int32_t replica, const RouteRequest& request) {
  ReplicaView& view = views_[static_cast<size_t>(replica)];
  ++view.outstanding_requests;
  view.outstanding_tokens += request.prompt_tokens;
  view.waiting_tokens += request.prompt_tokens;
  view.free_kv_tokens -= request.prompt_tokens;
  if (request.high_priority && view.high_priority++ == 0) view.free_kv_tokens -= headroom_tokens_;
  if (info_.wants_prefixes) prefixes_.Routed(replica, request.keys, request.block_size, request.prompt_tokens);
}

void Fleet::Ended(int32_t replica, int32_t prompt_tokens, int32_t output_tokens) {
  ReplicaView& view = views_[static_cast<size_t>(replica)];
  TACTUS_CHECK(view.outstanding_requests > 0);
  --view.outstanding_requests;
  view.outstanding_tokens -= prompt_tokens;
  if (output_tokens < 0) return;
  mean_prompt_ += kFollow * (prompt_tokens - mean_prompt_);
  mean_output_ += kFollow * (output_tokens - mean_output_);
}

void Fleet::Told(int32_t replica, const ReplicaState& state, int64_t routed_since) {
  ReplicaView& view = views_[static_cast<size_t>(replica)];
  view.running = state.running;
  view.waiting_tokens = state.waiting_tokens + routed_since;
  view.high_priority = state.high_priority;
  view.free_kv_tokens = state.free_kv_tokens - view.waiting_tokens - (state.high_priority > 0 ? headroom_tokens_ : 0);
  view.step_tokens = state.step_tokens;
  if (view.kv_tokens != state.kv_tokens) prefixes_.SetCapacity(replica, std::min(state.kv_tokens, kMostRemembered));
  view.kv_tokens = state.kv_tokens;
}

void Fleet::SetReady(int32_t replica, bool ready) {
  views_[static_cast<size_t>(replica)].ready = ready;
}

}  // namespace tactus::fleet
