// A thread's CPU time: to bound work whose size depends on its input, never for scheduling. Any thread.
#pragma once

#include "base/units.h"

namespace tactus {

// CPU time of the calling thread since its start (base/system_clock.cc). A call takes a third of a microsecond.
DurationNs ThreadCpuNs();

}  // namespace tactus
