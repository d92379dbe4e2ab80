// Objectives as people type them: ttft=500ms,tbt=100ms,jct=10s, and by class.
#pragma once

#include <string>

#include "base/units.h"
#include "sim/slo_mix.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::cli {

// Empty: none. kInvalidArgument (param "slo") for anything else that is not of the form.
Result<Slo> ParseSlo(const std::string& text);

// NAME:SHARE:OBJECTIVES by semicolons. OBJECTIVES: none, or ttft, tbt and jct, each a duration, a range a..b of
// durations, or such with x: multiples of what the request takes alone. Empty: no classes. kInvalidArgument (param
// "slo-mix") names what is wrong.
Result<sim::SloMix> ParseSloMix(const std::string& text);

}  // namespace tactus::cli
