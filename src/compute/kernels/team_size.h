// Number of a pool's threads that share its short jobs while other processes compete for the cores. A thread that loses
// its core during a task delays all others until the system returns the core, some milliseconds: longer than a whole
// short job. So the pool measures how long its threads have waited for a core (WaitedForCores) and excludes as many
// threads as cores are missing. Only a run with all threads shows whether the cores are free again: after a pause all
// threads share again, and the pause doubles while cores stay missing.
//
// Thread rule: one thread. Times are on the caller's clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include "base/units.h"

namespace tactus::compute {

class TeamSize {
 public:
  static constexpr DurationNs kWindow = 40 * kMillisecond;      // the measurement interval
  static constexpr DurationNs kFirstPause = 80 * kMillisecond;  // before all threads are tried again
  static constexpr DurationNs kLongestPause = 2 * kSecond;

  explicit TeamSize(int32_t threads) : threads_(threads), size_(threads) {}

  // Threads that share short jobs; 1 to all.
  int32_t size() const { return size_; }
  // Time of the next call of Look.
  TimeNs next_ns() const { return next_ns_; }
  // `waited_ns`: sum over all threads since their start.
  void Look(TimeNs now_ns, DurationNs waited_ns);

 private:
  const int32_t threads_;
  int32_t size_;
  TimeNs next_ns_ = 0, since_ns_ = 0, try_ns_ = 0;
  DurationNs waited_ns_ = 0, pause_ns_ = kFirstPause;
};

// Time that these threads of this process were ready to run without a core, summed. Threads that are 0, and systems
// that do not report it, count as 0.
DurationNs WaitedForCores(std::span<const std::atomic<pid_t>> threads);

using WaitedFn = DurationNs (*)(std::span<const std::atomic<pid_t>> threads);

}  // namespace tactus::compute
