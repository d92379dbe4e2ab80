#include "fleet/balance/balancers.h"

namespace tactus::fleet {
namespace {

class RoundRobin final : public Balancer {
 public:
  int32_t Pick(const RouteRequest&, const FleetView& fleet) override {
    const auto replicas = fleet.replicas;
    for (size_t tried = 0; tried < replicas.size(); ++tried) {
      const size_t at = next_++ % replicas.size();
      if (replicas[at].ready) return static_cast<int32_t>(at);
    }
    return -1;
  }

 private:
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Balancer> MakeRoundRobin(uint64_t) {
  return std::make_unique<RoundRobin>();
}

}  // namespace tactus::fleet
