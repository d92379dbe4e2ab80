// The one place that reads the machine's clocks (tests/lint checks that).
#include <chrono>

#include "base/clock.h"

namespace tactus {
namespace {

class SteadyClock final : public Clock {
 public:
  TimeNs NowNs() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

Clock& SystemClock() {
  static SteadyClock clock;
  return clock;
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tactus
