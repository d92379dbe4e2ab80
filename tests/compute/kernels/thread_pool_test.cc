#include "compute/kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "compute/kernels/usable_cores.h"
#include "support/temp_folder.h"
#include "time_limit.h"

namespace tactus::compute {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceWithAValidThread) {
  const test::TimeLimit limit("ParallelFor or the pool's end did not return");
  for (const int32_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads, SystemClock());
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      std::atomic<bool> valid{true};
      pool.ParallelFor(tasks, [&](int64_t task, int32_t thread) {
        runs[static_cast<size_t>(task)].fetch_add(1);
        if (thread < 0 || thread >= threads) valid = false;
      });
      for (auto& r : runs) ASSERT_EQ(r.load(), 1);
      EXPECT_TRUE(valid);
    }
  }
}

// Memory written by tasks is visible to the caller after ParallelFor, and a job's data to its tasks (run under tsan).
TEST(ThreadPool, ManySmallJobsInARow) {
  const test::TimeLimit limit("one of 20,000 jobs did not return");
  ThreadPool pool(4, SystemClock());
  std::vector<int64_t> values(64, 0);
  for (int64_t job = 1; job <= 20000; ++job) {
    const int64_t tasks = 1 + job % 64;
    pool.ParallelFor(tasks, [&](int64_t task, int32_t) { values[static_cast<size_t>(task)] += job; });
  }
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t want = 0;
    for (int64_t job = 1; job <= 20000; ++job) want += static_cast<int64_t>(i) < 1 + job % 64 ? job : 0;
    ASSERT_EQ(values[i], want) << i;
  }
}

// 'S': asleep, 'R': running; 0 if the system does not report it.
char StateOf(pid_t thread) {
  std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(in, line);
  const size_t at = line.rfind(") ");
  return at == std::string::npos || at + 2 >= line.size() ? '\0' : line[at + 2];
}
void AwaitAsleep(pid_t thread) {
  while (StateOf(thread) != 'S') std::this_thread::yield();
}
pid_t ThisThread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// For tests whose tasks wait for each other: with a busy neighbour the pool would exclude threads.
DurationNs NoNeighbour(std::span<const std::atomic<pid_t>> /*threads*/) {
  return 0;
}

// Each of the three tasks waits for the other two, so no thread can replace one that was not woken.
TEST(ThreadPool, WakesWorkersThatSleep) {
  if (StateOf(ThisThread()) == '\0') GTEST_SKIP() << "the system does not report whether a thread sleeps";
  const test::TimeLimit limit("ParallelFor left a sleeping worker asleep, or no worker ever sleeps");
  ThreadPool pool(3, SystemClock(), NoNeighbour);
  std::vector<pid_t> ids(3);
  for (int round = 0; round < 20; ++round) {
    for (const pid_t id : ids) {
      if (id != 0 && id != ThisThread()) AwaitAsleep(id);
    }
    std::atomic<int> arrived{0};
    pool.ParallelFor(3, [&](int64_t, int32_t thread) {
      ids[static_cast<size_t>(thread)] = ThisThread();
      ++arrived;
      while (arrived.load() < 3) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 3);
  }
}

// A worker ends its task only once the caller, which has finished its own tasks, is asleep.
TEST(ThreadPool, WakesACallerThatSleeps) {
  if (StateOf(ThisThread()) == '\0') GTEST_SKIP() << "the system does not report whether a thread sleeps";
  const test::TimeLimit limit("ParallelFor did not return although every task was done, or its caller never sleeps");
  ThreadPool pool(2, SystemClock(), NoNeighbour);
  const pid_t caller = ThisThread();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> arrived{0}, ended{0};
    pool.ParallelFor(2, [&](int64_t, int32_t thread) {
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();  // one task each
      if (thread != 0) AwaitAsleep(caller);
      ++ended;
    });
    EXPECT_EQ(ended.load(), 2);
  }
}

TEST(ThreadPool, CountsTheJobsSharedByThreads) {
  ThreadPool pool(2, SystemClock()), one(1, SystemClock());
  EXPECT_EQ(pool.barriers(), 0);
  pool.ParallelFor(3, [](int64_t, int32_t) {});
  pool.ParallelFor(2, [](int64_t, int32_t) {});
  EXPECT_EQ(pool.barriers(), 2);
  pool.ParallelFor(1, [](int64_t, int32_t) {});
  pool.ParallelFor(0, [](int64_t, int32_t) {});
  EXPECT_EQ(pool.barriers(), 2) << "one task, or none, is not shared";
  one.ParallelFor(5, [](int64_t, int32_t) {});
  EXPECT_EQ(one.barriers(), 0);
}

TEST(ThreadPool, ALongTaskDoesNotDelayOtherTasks) {
  const test::TimeLimit limit("one long task kept all others from being run");
  ThreadPool pool(2, SystemClock());
  std::atomic<int> others{0};
  pool.ParallelFor(100, [&](int64_t task, int32_t) {
    if (task == 0) {
      while (others.load() < 99) std::this_thread::yield();  // ends only if the other thread takes all the rest
    } else {
      others.fetch_add(1);
    }
  });
  EXPECT_EQ(others.load(), 99);
}

TEST(ThreadPool, StartsAndStopsManyTimes) {
  const test::TimeLimit limit("a pool did not end");
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(3, SystemClock());
    std::atomic<int> sum{0};
    if (i % 2 == 0) pool.ParallelFor(5, [&](int64_t, int32_t) { ++sum; });
    EXPECT_EQ(sum.load(), i % 2 == 0 ? 5 : 0);
  }
}

TEST(ThreadPool, PoolsOfSeveralCallersAreIndependent) {
  const test::TimeLimit limit("a job of one of three pools did not return");
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      ThreadPool pool(2, SystemClock());
      for (int i = 0; i < 500; ++i) pool.ParallelFor(4, [&](int64_t task, int32_t) { sum += task; });
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum.load(), 3 * 500 * 6);
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their shadow memory needs the whole address space
// A thread's stack is memory that an address-space limit refuses.
TEST(ThreadPool, TooManyThreadsThrowInsteadOfTerminating) {
  const test::TimeLimit limit("the started threads did not end");
  constexpr int32_t kThreads = 1000;
  constexpr rlim_t kRoom = rlim_t{256} << 20;
  rlimit before{}, stack{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  ASSERT_EQ(getrlimit(RLIMIT_STACK, &stack), 0);
  if (stack.rlim_cur < 2 * kRoom / kThreads)
    GTEST_SKIP() << "stacks of " << stack.rlim_cur << " bytes are too small to run out of memory";
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kRoom;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  std::string what;
  try {
    ThreadPool pool(kThreads, SystemClock());
  } catch (const std::system_error& e) {
    what = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_NE(what.find(" of 1000"), std::string::npos) << what;
  ThreadPool pool(3, SystemClock());
  std::atomic<int> sum{0};
  pool.ParallelFor(5, [&](int64_t, int32_t) { ++sum; });
  EXPECT_EQ(sum.load(), 5);
}
#endif

TEST(QuotaCores, TheSmallestQuotaOfAllParentsApplies) {
  test::TempFolder root;
  EXPECT_EQ(QuotaCores(root.path()), 0) << "nothing to read is no quota";
  root.Write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(QuotaCores(root.path()), 0);
  root.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(QuotaCores(root.path()), 0);
  root.Write("sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
  EXPECT_EQ(QuotaCores(root.path()), 6);
  root.Write("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  EXPECT_EQ(QuotaCores(root.path()), 4) << "a parent's quota also applies";
  root.Write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(QuotaCores(root.path()), 2) << "whole cores, of the mount itself too";
  root.Write("sys/fs/cgroup/cpu.max", "900000 100000\n");
  EXPECT_EQ(QuotaCores(root.path()), 4) << "a parent that allows more changes nothing";
  root.Write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(QuotaCores(root.path()), 1) << "half a core is one";
  root.Write("sys/fs/cgroup/a/b/cpu.max", "30000 10000\n");
  EXPECT_EQ(QuotaCores(root.path()), 3) << "in the period that is written";
}

TEST(QuotaCores, CgroupV1ReadsTheCpuController) {
  test::TempFolder root;
  root.Write("proc/self/cgroup", "7:memory:/m\n5:cpu,cpuacct:/x\n3:cpuset:/y\nbroken\n");
  root.Write("sys/fs/cgroup/cpu/m/cpu.cfs_quota_us", "100000");
  root.Write("sys/fs/cgroup/cpu/m/cpu.cfs_period_us", "100000");
  root.Write("sys/fs/cgroup/cpu/y/cpu.cfs_quota_us", "100000");
  root.Write("sys/fs/cgroup/cpu/y/cpu.cfs_period_us", "100000");
  EXPECT_EQ(QuotaCores(root.path()), 0) << "quotas of other controllers' groups";
  root.Write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1");
  root.Write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(QuotaCores(root.path()), 0) << "-1 is none";
  root.Write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000");
  EXPECT_EQ(QuotaCores(root.path()), 3);
}

TEST(UsableCores, ObeyAffinityAndQuota) {
  const int32_t cores = UsableCores(), quota = QuotaCores();
  EXPECT_GE(cores, 1);
  if (quota > 0) {
    EXPECT_LE(cores, quota);
  }
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(cores, CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c) {
    if (CPU_ISSET(c, &before)) CPU_SET(c, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(UsableCores(), 1) << "bound to one";
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// With more cores than a set holds the system refuses to report the affinity; here a filter of system calls does, in a
// separate process.
TEST(UsableCores, AreAllCoresIfAffinityIsUnreadable) {
  enum Answer { kAll, kOther, kNoFilter };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    sock_filter refuse[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_sched_getaffinity},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EINVAL},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    const sock_fprog program = {4, refuse};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(kNoFilter);
    const auto all = static_cast<int32_t>(std::thread::hardware_concurrency());
    const int32_t quota = QuotaCores();
    _exit(UsableCores() == (quota > 0 ? std::min(all, quota) : all) ? kAll : kOther);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoFilter) GTEST_SKIP() << "the system cannot filter calls";
  EXPECT_EQ(WEXITSTATUS(status), kAll);
}

}  // namespace
}  // namespace tactus::compute
