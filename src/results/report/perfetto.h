// A run as a trace of events (Chrome's JSON format) for ui.perfetto.dev: one track of steps per replica, and each
// request with its phases. Written while the run file is read: memory does not grow with the run.
#pragma once

#include <string>

#include "tactus/status.h"

namespace tactus::results {

// Errors as in ReadRunFile. kDataLoss: `out` cannot be written.
Status WritePerfetto(const std::string& run_path, const std::string& out);

}  // namespace tactus::results
