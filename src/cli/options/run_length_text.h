// Parses the length of a part of a run: 60s, 10m, or 100 (requests).
#pragma once

#include <string>

#include "results/obs/run_window.h"
#include "tactus/status.h"

namespace tactus::cli {

// Empty: not given. kInvalidArgument (param `flag`) for text of any other form.
Result<results::RunLength> ParseRunLength(const std::string& flag, const std::string& text);

}  // namespace tactus::cli
