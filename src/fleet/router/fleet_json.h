// The list of replicas as JSON (GET /fleet/replicas).
#pragma once

#include <string>

#include "fleet/router/fleet_watch.h"

namespace tactus::fleet {

std::string FleetJson(const FleetWatch& watch);

}  // namespace tactus::fleet
