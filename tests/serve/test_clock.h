// A clock that tests move by hand; any thread.
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

  // Moves on in steps until `happened`, or until `limit_ns` have been gone through in vain (false). Between steps
  // others get a moment, so that what falls due after few steps is seen after few.
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
