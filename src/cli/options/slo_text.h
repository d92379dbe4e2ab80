// Parses objectives: ttft=500ms,tbt=100ms,jct=10s, and objectives by class.
#pragma once

#include <string>

#include "base/units.h"
#include "sim/workload/slo_mix.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::cli {

// Empty: none. kInvalidArgument (param "slo") for text of any other form.
Result<Slo> ParseSlo(const std::string& text);

// NAME:SHARE:OBJECTIVES, separated by semicolons. OBJECTIVES: none, or ttft, tbt and jct, each a duration, a range a..b
// of durations, or either with x: multiples of the request's latency when it runs alone. Empty: no classes.
// kInvalidArgument (param "slo-mix") names the error.
Result<sim::SloMix> ParseSloMix(const std::string& text);

}  // namespace tactus::cli
