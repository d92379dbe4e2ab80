// The machine's ceilings (compute/ceilings), measured in the same run as the kernels.
#pragma once

#include "compute/ceilings/ceilings.h"

namespace tactus::bench {

using compute::CeilingLoops;
using compute::Ceilings;
#if defined(__x86_64__)
using compute::AmxLoops;
using compute::Avx2Loops;
using compute::Avx512Loops;
using compute::AvxVnniLoops;
#endif
using compute::PortableLoops;

// Measured once (about a second) for the kernel set `ops`.
const Ceilings& MeasuredCeilings(compute::ThreadPool& pool, const compute::Ops& ops);
// Measured at each call (about 0.1 s), over one buffer: for runs in which the machine's speed varies.
Ceilings MeasureCeilings(compute::ThreadPool& pool, const compute::Ops& ops);

}  // namespace tactus::bench
