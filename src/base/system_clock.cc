// The only file that reads the machine's clocks (tests/lint checks that).
#include <chrono>
#include <ctime>

#include "base/clock.h"
#include "base/thread_cpu.h"

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

DurationNs ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

}  // namespace tactus
