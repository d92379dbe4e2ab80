// A manual clock for tests; any thread.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"

namespace tactus {

class TestClock final : public Clock {
 public:
  TimeNs NowNs() override { return now_ns_.load(); }
  void Advance(DurationNs d_ns) { now_ns_.fetch_add(d_ns); }

  // Advances in steps until `happened` is true; false after `limit_ns`. Sleeps between steps, so that other threads
  // react within few steps.
  bool AdvanceUntil(DurationNs step_ns, DurationNs limit_ns, const std::function<bool()>& happened) {
    for (DurationNs gone_ns = 0; gone_ns <= limit_ns; gone_ns += step_ns) {
      if (happened()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      Advance(step_ns);
    }
    return happened();
  }

 private:
  std::atomic<TimeNs> now_ns_{kSecond};
};

}  // namespace tactus
