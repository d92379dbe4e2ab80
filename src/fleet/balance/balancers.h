// The factories of balancers.def.
#pragma once

#include "fleet/balance/balancer.h"

namespace tactus::fleet {

#define TACTUS_BALANCER(name, make, state, prefixes, moves, help) std::unique_ptr<Balancer> make(uint64_t seed);
#include "fleet/balance/balancers.def"
#undef TACTUS_BALANCER

}  // namespace tactus::fleet
