// The time of day, only for texts and files that people or other programs read; no decision may depend on it.
#pragma once

#include <string>

#include "base/units.h"

namespace tactus {

// Nanoseconds since the Unix epoch (base/system_clock.cc).
TimeNs UnixNs();
// "2026-08-01T12:00:00.123Z".
std::string UtcText(TimeNs unix_ns);

}  // namespace tactus
