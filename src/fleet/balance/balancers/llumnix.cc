// Llumnix (OSDI 2024, 4.4.3), what it does at arrival: the freest replica. Freeness is the KV memory that is left when
// all that wait have theirs, over the requests in flight there, which will want more of it (the paper: over those that
// run; between two answers of a replica all would go to the same one). Which sequences move later is
// fleet/balance/rebalance.h's.
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
