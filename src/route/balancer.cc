// The table of balancers.
#include "route/balancer.h"

#include <fmt/format.h>

#include "route/balancers.h"

namespace tactus::route {

const std::vector<BalancerInfo>& Balancers() {
#define TACTUS_BALANCER(name, make, help) {name, make, help},
  static const std::vector<BalancerInfo> kBalancers = {
#include "route/balancers.def"
  };
#undef TACTUS_BALANCER
  return kBalancers;
}

Result<std::unique_ptr<Balancer>> MakeBalancer(const std::string& name, uint64_t seed) {
  std::string known;
  for (const BalancerInfo& b : Balancers()) {
    if (name == b.name) return b.make(seed);
    known += (known.empty() ? "" : ", ") + std::string(b.name);
  }
  return InvalidArgument(fmt::format("unknown balancer '{}'; known: {}", name, known), "balancer");
}

}  // namespace tactus::route
