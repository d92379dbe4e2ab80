// Ties rotate, so that equally loaded replicas share the load.
#include "fleet/balance/balancers.h"

namespace tactus::fleet {
namespace {

class LeastOutstanding final : public Balancer {
 public:
  int32_t Pick(const RouteRequest&, const FleetView& fleet) override {
    const auto replicas = fleet.replicas;
    int32_t best = -1;
    for (size_t i = 0; i < replicas.size(); ++i) {
      const size_t at = (next_ + i) % replicas.size();
      if (!replicas[at].ready) continue;
      if (best < 0 || replicas[at].outstanding_requests < replicas[static_cast<size_t>(best)].outstanding_requests) {
        best = static_cast<int32_t>(at);
      }
    }
    if (best >= 0) next_ = static_cast<size_t>(best) + 1;
    return best;
  }

 private:
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Balancer> MakeLeastOutstanding(uint64_t) {
  return std::make_unique<LeastOutstanding>();
}

}  // namespace tactus::fleet
