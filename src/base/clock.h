// The only source of time. One Clock is passed in at the top; a wall-clock call anywhere else fails the lint test.
#pragma once

#include "base/units.h"

namespace tactus {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs NowNs() = 0;  // monotonic; any thread
};

// Steady clock of the machine (base/system_clock.cc, the only file that may call it).
Clock& SystemClock();
// Seconds since the Unix epoch. Only for `created` fields, log lines, and the expiry of data that outlives the process.
int64_t UnixSeconds();

// A clock that changes only by Advance and AdvanceTo: for tests, replay, simulation. Not thread-safe.
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
