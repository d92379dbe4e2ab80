// Mitzenmacher, "The power of two choices in randomized load balancing" (IEEE TPDS 2001).
#include "base/rng.h"
#include "fleet/balance/balancers.h"

namespace tactus::fleet {
namespace {

class PowerOfTwo final : public Balancer {
 public:
  explicit PowerOfTwo(uint64_t seed) : rng_(seed) {}
  int32_t Pick(const RouteRequest&, const FleetView& fleet) override {
    const auto replicas = fleet.replicas;
    int64_t ready = 0;
    for (const ReplicaView& r : replicas) ready += r.ready;
    if (ready == 0) return -1;
    const int64_t first = rng_.UniformInt(0, ready - 1);
    if (ready == 1) return Nth(replicas, first);
    // A different replica: never the same one twice.
    const int64_t other = rng_.UniformInt(0, ready - 2);
    const int32_t a = Nth(replicas, first), b = Nth(replicas, other + (other >= first));
    const auto load = [&](int32_t i) { return replicas[static_cast<size_t>(i)].outstanding_requests; };
    return load(b) < load(a) ? b : a;
  }

 private:
  static int32_t Nth(std::span<const ReplicaView> replicas, int64_t n) {
    for (size_t i = 0; i < replicas.size(); ++i) {
      if (replicas[i].ready && n-- == 0) return static_cast<int32_t>(i);
    }
    return -1;
  }

  Rng rng_;
};

}  // namespace

std::unique_ptr<Balancer> MakePowerOfTwo(uint64_t seed) {
  return std::make_unique<PowerOfTwo>(seed);
}

}  // namespace tactus::fleet
