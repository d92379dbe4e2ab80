// How many of a pool's threads share its short jobs where other processes want the cores too. A thread that loses its
// core amid a task holds up all others for as long as the system lets the neighbour run, some milliseconds: longer than
// a whole short job. So the pool looks how long its threads have waited for a core (WaitedForCores), and where cores
// are missing, so many threads sit out. Whether the neighbour has gone shows only with all threads: they are tried
// again after a pause, which doubles while the cores stay missing.
//
// Thread rule: one thread. Times are those of the caller's clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include "base/units.h"

namespace tactus::compute {

class TeamSize {
 public:
  static constexpr DurationNs kWindow = 40 * kMillisecond;      // is looked at as a whole
  static constexpr DurationNs kFirstPause = 80 * kMillisecond;  // until all are tried again
  static constexpr DurationNs kLongestPause = 2 * kSecond;

  explicit TeamSize(int32_t threads) : threads_(threads), size_(threads) {}

  // Threads that share short jobs; 1 to all.
  int32_t size() const { return size_; }
  // When the next look is due.
  TimeNs next_ns() const { return next_ns_; }
  // `waited_ns`: of all threads together, since they began.
  void Look(TimeNs now_ns, DurationNs waited_ns);

 private:
  const int32_t threads_;
  int32_t size_;
  TimeNs next_ns_ = 0, since_ns_ = 0, try_ns_ = 0;
  DurationNs waited_ns_ = 0, pause_ns_ = kFirstPause;
};

// How long these threads of this process were ready to run without a core, all together; threads that are 0, and
// systems that do not tell, count as never.
DurationNs WaitedForCores(std::span<const std::atomic<pid_t>> threads);

using WaitedFn = DurationNs (*)(std::span<const std::atomic<pid_t>> threads);

}  // namespace tactus::compute
