// Notices a step whose result does not come: the executor, its device or the engine's thread hangs. It looks from
// another thread, so it works while the engine does not.
//
// One thread. Invariant: a step is stuck only after kLooks looks in a row beyond its limit, so a process that was
// stopped for a while, or a machine that slept, has no stuck step when it continues.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"
#include "tactus/engine.h"

namespace tactus::serve {

class StepWatchdog {
 public:
  static constexpr int kLooks = 5;
  static constexpr DurationNs kUnpredictedNs = 600 * kSecond;  // limit of a step without a prediction

  // A step is stuck after `factor` times its predicted time, and after `least_ns`. 0: never.
  StepWatchdog(double factor, DurationNs least_ns) : factor_(factor), least_ns_(least_ns) {}

  // Call a few times a second. A line if a step has become stuck, or a stuck one has ended.
  std::optional<std::string> Look(const EngineStats& stats, TimeNs now_ns);
  bool stuck() const { return stuck_step_ >= 0; }

 private:
  const double factor_;
  const DurationNs least_ns_;
  int64_t late_step_ = -1, stuck_step_ = -1;
  TimeNs stuck_since_ns_ = 0;
  int looks_ = 0;  // in a row at which late_step_ was beyond its limit
};

}  // namespace tactus::serve
