// Runs an endpoint picker from its options to its end: the fleet, the picker, its ports, and the signals that stop it.
#pragma once

#include <functional>
#include <string_view>

#include "fleet/picker/epp_options.h"
#include "http/server_log.h"
#include "tactus/status.h"

namespace tactus::fleet {

// Returns after SIGTERM or SIGINT and at most --shutdown-timeout; a second signal ends the process. kInvalidArgument
// names the option. Must be called before any other thread runs.
// SIGHUP opens `file`, the file of the log (may be null), again, and reads the certificates of the ports and those for
// replicas again.
Status RunEpp(const EppOptions& options, const std::function<void(std::string_view line)>& log,
              http::ServerLog* file = nullptr);

}  // namespace tactus::fleet
