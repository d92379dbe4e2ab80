// Llumnix (OSDI 2024, 4.4.3) at arrival: chooses the freest replica. Freeness is the KV memory left after all waiting
// requests have theirs, divided by the requests in flight there, which will need more of it (the paper divides by the
// running ones; then all arrivals between two reports of a replica would go to the same one). Moves of running
// sequences: fleet/balance/rebalance.h.
#include "fleet/balance/balancers.h"
#include "fleet/balance/rebalance.h"

namespace tactus::fleet {
namespace {

class Llumnix final : public Balancer {
 public:
  int32_t Pick(const RouteRequest&, const FleetView& fleet) override {
    int32_t best = -1;
    double most = 0;
    for (size_t i = 0; i < fleet.replicas.size(); ++i) {
      const ReplicaView& r = fleet.replicas[i];
      if (!r.ready) continue;
      const double freeness = Freeness(r.free_kv_tokens, r.outstanding_requests);
      if (best >= 0) {
        const ReplicaView& b = fleet.replicas[static_cast<size_t>(best)];
        if (freeness < most || (freeness == most && r.outstanding_tokens >= b.outstanding_tokens)) continue;
      }
      best = static_cast<int32_t>(i);
      most = freeness;
    }
    return best;
  }
};

}  // namespace

std::unique_ptr<Balancer> MakeLlumnix(uint64_t) {
  return std::make_unique<Llumnix>();
}

}  // namespace tactus::fleet
