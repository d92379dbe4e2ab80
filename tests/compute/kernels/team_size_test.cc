#include "compute/kernels/team_size.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "compute/kernels/thread_pool.h"
#include "time_limit.h"

namespace tactus::compute {
namespace {

// Calls Look once per window, with the given number of missing cores.
class Looking {
 public:
  explicit Looking(int32_t threads) : team(threads) { See(0); }
  int32_t See(double missing) {
    now_ns += TeamSize::kWindow;
    waited_ns += static_cast<DurationNs>(missing * static_cast<double>(TeamSize::kWindow));
    team.Look(now_ns, waited_ns);
    return team.size();
  }
  // Number of windows from now on in which not all threads take part; members do not wait.
  int64_t Pause() {
    int64_t windows = 0;
    while (See(0) < threads_all) ++windows;
    return windows;
  }
  TeamSize team;
  int32_t threads_all = team.size();
  TimeNs now_ns = 10 * kSecond;
  DurationNs waited_ns = kSecond;
};

TEST(TeamSize, ExcludesAsManyThreadsAsCoresAreMissing) {
  EXPECT_EQ(Looking(2).See(0.0), 2);
  EXPECT_EQ(Looking(2).See(0.25), 2) << "a server's own threads and its clients";
  EXPECT_EQ(Looking(2).See(0.5), 1) << "half a core is missing: a neighbour has the other half";
  EXPECT_EQ(Looking(2).See(1.9), 1) << "one always stays";
  EXPECT_EQ(Looking(8).See(1.0), 7);
  EXPECT_EQ(Looking(8).See(2.5), 5);
  EXPECT_EQ(Looking(1).See(1.0), 1);
}

TEST(TeamSize, AllThreadsAreTriedAgainAfterDoublingPauses) {
  Looking look(4);
  int64_t last = 0;
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(look.See(0.9), 3) << round;
    const int64_t windows = look.Pause();
    EXPECT_GE(windows, 1);
    if (round > 0) {
      EXPECT_GE(windows + 1, 2 * (last + 1) - 1) << round;
    }
    last = windows;
  }
  for (int round = 0; round < 10; ++round) {
    look.See(0.9);
    last = look.Pause();
  }
  EXPECT_LE(last, TeamSize::kLongestPause / TeamSize::kWindow);
  EXPECT_EQ(look.See(0.0), 4) << "the neighbour has gone";
  EXPECT_EQ(look.See(0.9), 3);
  EXPECT_LE(look.Pause(), TeamSize::kFirstPause / TeamSize::kWindow) << "and pauses start again from the shortest";
}

TEST(TeamSize, IdleTimeIsNotMeasured) {
  Looking look(2);
  look.now_ns += kSecond;
  EXPECT_EQ(look.See(100), 2) << "the threads waited long ago";
  EXPECT_EQ(look.See(0.5), 1);
}

TEST(TeamSize, WaitedForCoresReadsTheThreadsWaits) {
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  DurationNs ran = 0, waited = -1;
  std::ifstream("/proc/self/task/" + std::to_string(self) + "/schedstat") >> ran >> waited;
  if (waited < 0) GTEST_SKIP() << "this system does not report it";
  std::vector<std::atomic<pid_t>> threads(3);
  EXPECT_EQ(WaitedForCores(threads), 0) << "no thread has started";
  threads[1].store(self);
  threads[2].store(-1);
  EXPECT_GE(WaitedForCores(threads), waited);
  EXPECT_LT(WaitedForCores(threads), waited + 60 * kSecond) << "not the time that it ran";
}

// Advances with every reading, so that waits end; tasks also advance it.
class TickingClock final : public Clock {
 public:
  TimeNs NowNs() override { return now_ns_.fetch_add(100) + 100; }
  void Advance(DurationNs time_ns) { now_ns_.fetch_add(time_ns); }

 private:
  std::atomic<TimeNs> now_ns_{kSecond};
};

std::atomic<DurationNs> told_ns{0};
DurationNs Told(std::span<const std::atomic<pid_t>>) {
  return told_ns.load();
}

// Ends only if two threads run tasks at the same time.
void BothTakePart(ThreadPool& pool, TickingClock& clock, int64_t tasks, DurationNs task_ns) {
  std::atomic<int> arrived{0};
  pool.ParallelFor(tasks, [&](int64_t task, int32_t) {
    clock.Advance(task_ns);
    if (task < tasks - 2) return;
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
}

TEST(TeamSize, APoolWhoseCoresAreTakenLeavesShortJobsToItsMembers) {
  const test::TimeLimit limit("a worker that sat out did not come back, or not for a long job");
  TickingClock clock;
  told_ns = 0;
  ThreadPool pool(2, clock, Told);
  BothTakePart(pool, clock, 2, 0);
  const auto window = [&](DurationNs waited_ns) {
    told_ns += waited_ns;
    clock.Advance(TeamSize::kWindow);
    pool.ParallelFor(2, [](int64_t, int32_t) {});
  };
  window(0);
  BothTakePart(pool, clock, 2, 0);
  window(TeamSize::kWindow / 2);
  for (int job = 0; job < 2000; ++job) {
    std::vector<int> runs(8);  // no atomics: one thread runs all of them
    pool.ParallelFor(8, [&](int64_t task, int32_t thread) {
      ++runs[static_cast<size_t>(task)];
      EXPECT_EQ(thread, 0);
    });
    EXPECT_EQ(runs, std::vector<int>(8, 1));
  }
  BothTakePart(pool, clock, 4, 2 * kMillisecond);
  window(0);
  window(0);
  window(0);
  BothTakePart(pool, clock, 2, 0);
}

}  // namespace
}  // namespace tactus::compute
