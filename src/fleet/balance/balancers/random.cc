#include "base/rng.h"
#include "fleet/balance/balancers.h"

namespace tactus::fleet {
namespace {

class Random final : public Balancer {
 public:
  explicit Random(uint64_t seed) : rng_(seed) {}
  int32_t Pick(const RouteRequest&, const FleetView& fleet) override {
    const auto replicas = fleet.replicas;
    int64_t ready = 0;
    for (const ReplicaView& r : replicas) ready += r.ready;
    if (ready == 0) return -1;
    int64_t skip = rng_.UniformInt(0, ready - 1);
    for (size_t i = 0; i < replicas.size(); ++i) {
      if (replicas[i].ready && skip-- == 0) return static_cast<int32_t>(i);
    }
    return -1;
  }

 private:
  Rng rng_;
};

}  // namespace

std::unique_ptr<Balancer> MakeRandom(uint64_t seed) {
  return std::make_unique<Random>(seed);
}

}  // namespace tactus::fleet
