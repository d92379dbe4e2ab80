#include "ceiling.h"

namespace tactus::bench {

Ceilings MeasureCeilings(compute::ThreadPool& pool, const compute::Ops& ops) {
  static compute::CeilingMeter meter(SystemClock());
  return meter.Measure(pool, compute::LoopsOf(ops.name));
}

const Ceilings& MeasuredCeilings(compute::ThreadPool& pool, const compute::Ops& ops) {
  static const Ceilings ceilings = MeasureCeilings(pool, ops);
  return ceilings;
}

}  // namespace tactus::bench
