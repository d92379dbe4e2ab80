#include "compute/kernels/team_size.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace tactus::compute {
namespace {

// Cores missing in a window that count as contention. A process that computes uses half a core or more; a client of the
// server and the server's HTTP threads use less, and short bursts do not justify a pause.
constexpr double kMissing = 0.3;

}  // namespace

void TeamSize::Look(TimeNs now_ns, DurationNs waited_ns) {
  const DurationNs passed = now_ns - since_ns_;
  const double missing =
      static_cast<double>(waited_ns - waited_ns_) / static_cast<double>(std::max<DurationNs>(1, passed));
  const bool stale = next_ns_ == 0 || passed > 2 * kWindow;  // the pool was idle meanwhile
  since_ns_ = now_ns;
  waited_ns_ = waited_ns;
  next_ns_ = now_ns + kWindow;
  if (size_ < threads_) {
    if (now_ns >= try_ns_) size_ = threads_;
  } else if (!stale && missing >= kMissing) {
    size_ = std::max(1, threads_ - static_cast<int32_t>(std::ceil(missing - kMissing)));
    try_ns_ = now_ns + pause_ns_;
    pause_ns_ = std::min(2 * pause_ns_, kLongestPause);
  } else if (!stale) {
    pause_ns_ = kFirstPause;
  }
}

DurationNs WaitedForCores(std::span<const std::atomic<pid_t>> threads) {
  DurationNs sum = 0;
  for (const std::atomic<pid_t>& thread : threads) {
    const pid_t id = thread.load(std::memory_order_relaxed);
    if (id == 0) continue;
    std::ifstream file("/proc/self/task/" + std::to_string(id) + "/schedstat");
    DurationNs ran = 0, waited = 0;
    if (file >> ran >> waited) sum += waited;
  }
  return sum;
}

}  // namespace tactus::compute
