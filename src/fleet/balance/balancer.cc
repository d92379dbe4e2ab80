// The table of balancers.
#include "fleet/balance/balancer.h"

#include <fmt/format.h>

#include "fleet/balance/balancers.h"

namespace tactus::fleet {

const std::vector<BalancerInfo>& Balancers() {
#define TACTUS_BALANCER(name, make, state, prefixes, moves, help) {name, make, state, prefixes, moves, help},
  static const std::vector<BalancerInfo> kBalancers = {
#include "fleet/balance/balancers.def"
  };
#undef TACTUS_BALANCER
  return kBalancers;
}

Result<const BalancerInfo*> FindBalancer(const std::string& name) {
  std::string known;
  for (const BalancerInfo& b : Balancers()) {
    if (name == b.name) return &b;
    known += (known.empty() ? "" : ", ") + std::string(b.name);
  }
  return InvalidArgument(fmt::format("unknown balancer '{}'; known: {}", name, known), "balancer");
}

}  // namespace tactus::fleet
