// The only source of time. One Clock is passed in at the top; a wall-clock call anywhere else fails the lint test.
#pragma once

#include "base/units.h"

namespace tactus {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs NowNs() = 0;  // monotonic; any thread
};

// Steady clock of the machine (base/system_clock.cc, the one place that may call it).
Clock& SystemClock();
// Seconds since the Unix epoch, for `created` fields, log lines, and the expiry of what outlives the process; for no
// other decision.
int64_t UnixSeconds();

// A clock that stands still until it is told to move: tests, replay, simulation. Not thread-safe.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimeNs start_ns = 0) : now_ns_(start_ns) {}
  TimeNs NowNs() override { return now_ns_; }
  void AdvanceTo(TimeNs t_ns) {
    if (t_ns > now_ns_) now_ns_ = t_ns;
  }
  void Advance(DurationNs d_ns) { now_ns_ += d_ns; }

 private:
  TimeNs now_ns_;
};

}  // namespace tactus
