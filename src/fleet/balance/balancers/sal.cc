// SAL (LARRY/SAL, 4.2, equation 2): the replica with the shortest estimated wait, in steps: until enough memory is
// free, or until the prompts before it and its own are computed, whichever is later.
//
//   max((m - free) / mu, q / tau)
//
// m: KV tokens that the prompt needs; free: free KV tokens, less those that the queue will take; mu: KV tokens that
// become free per step, running x (prompt + output) / output on average; q: queued prompt tokens including this
// request's; tau: tokens of a step. Ties go to the fewest outstanding tokens.
#include <algorithm>
#include <limits>

#include "fleet/balance/balancers.h"

namespace tactus::fleet {
namespace {

class Sal final : public Balancer {
 public:
  int32_t Pick(const RouteRequest& request, const FleetView& fleet) override {
    const double freed_by_one = (fleet.prompt_tokens + fleet.output_tokens) / std::max(1.0, fleet.output_tokens);
    int32_t best = -1;
    double least = 0;
    for (size_t i = 0; i < fleet.replicas.size(); ++i) {
      const ReplicaView& r = fleet.replicas[i];
      if (!r.ready) continue;
      const double wait = Wait(request, r, r.running * freed_by_one);
      if (best >= 0) {
        const ReplicaView& b = fleet.replicas[static_cast<size_t>(best)];
        if (wait > least || (wait == least && r.outstanding_tokens >= b.outstanding_tokens)) continue;
      }
      best = static_cast<int32_t>(i);
      least = wait;
    }
    return best;
  }

 private:
  static double Wait(const RouteRequest& request, const ReplicaView& r, double freed_per_step) {
    const auto missing = static_cast<double>(request.prompt_tokens - r.free_kv_tokens);
    double memory = 0;
    if (missing > 0) memory = freed_per_step > 0 ? missing / freed_per_step : std::numeric_limits<double>::infinity();
    const auto queued = static_cast<double>(r.waiting_tokens + request.prompt_tokens);
    return std::max(memory, queued / static_cast<double>(std::max<int64_t>(1, r.step_tokens)));
  }
};

}  // namespace

std::unique_ptr<Balancer> MakeSal(uint64_t) {
  return std::make_unique<Sal>();
}

}  // namespace tactus::fleet
