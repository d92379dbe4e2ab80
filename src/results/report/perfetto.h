// A run as a trace of events (Chrome's JSON format), for ui.perfetto.dev: a track of steps for each replica, and each
// request with its phases. Written as the run file is read: memory does not grow with the run.
#pragma once

#include <string>

#include "tactus/status.h"

namespace tactus::results {

// As ReadRunFile. kDataLoss: `out` cannot be written.
Status WritePerfetto(const std::string& run_path, const std::string& out);

}  // namespace tactus::results
