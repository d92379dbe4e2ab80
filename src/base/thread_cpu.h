// How much a thread has computed: for bounds on work whose size its input decides, never for a schedule. Any thread.
#pragma once

#include "base/units.h"

namespace tactus {

// CPU time of the calling thread since it began (base/system_clock.cc). Takes a third of a microsecond.
DurationNs ThreadCpuNs();

}  // namespace tactus
