// The data of a router's GET /events (docs/reference/api.md, "Live events of a fleet"). Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "fleet/router/fleet_watch.h"
#include "fleet/router/forward.h"

namespace tactus::fleet {

// The data of the first event, and the members of a frame.
std::string FleetHello(std::string_view balancer);
std::string FleetFrame(const FleetWatch& watch, const ForwardCounts& counts, TimeNs now_ns);

}  // namespace tactus::fleet
