#include "kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace tactus::kernels {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceWithAValidThread) {
  for (const int32_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
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

// Plain memory written by tasks is visible to the caller after ParallelFor, and a job's data to its tasks (run under
// tsan).
TEST(ThreadPool, ManySmallJobsInARow) {
  ThreadPool pool(4);
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

// Workers asleep and the caller asleep: both are woken.
TEST(ThreadPool, WakesSleepers) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> sum{0};
    pool.ParallelFor(6, [&](int64_t task, int32_t thread) {
      if (thread != 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      sum += static_cast<int>(task);
    });
    EXPECT_EQ(sum.load(), 15);
  }
}

TEST(ThreadPool, ATaskMayTakeLongWithoutHoldingOthersUp) {
  ThreadPool pool(2);
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
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(3);
    std::atomic<int> sum{0};
    if (i % 2 == 0) pool.ParallelFor(5, [&](int64_t, int32_t) { ++sum; });
    EXPECT_EQ(sum.load(), i % 2 == 0 ? 5 : 0);
  }
}

TEST(ThreadPool, PoolsOfSeveralCallersDoNotMeet) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      ThreadPool pool(2);
      for (int i = 0; i < 500; ++i) pool.ParallelFor(4, [&](int64_t task, int32_t) { sum += task; });
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum.load(), 3 * 500 * 6);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)   // their shadow memory needs all of the address space
// A thread's stack is memory that a limit on addresses refuses.
TEST(ThreadPool, TooManyThreadsAreAnErrorAndNotTheEnd) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{256} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  std::string what;
  try {
    ThreadPool pool(1000);
  } catch (const std::system_error& e) {
    what = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_NE(what.find(" of 1000"), std::string::npos) << what;
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  pool.ParallelFor(5, [&](int64_t, int32_t) { ++sum; });
  EXPECT_EQ(sum.load(), 5);
}
#endif

TEST(UsableCores, IsWithinTheMachine) {
  const int32_t cores = UsableCores();
  EXPECT_GE(cores, 1);
  EXPECT_LE(cores, static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace tactus::kernels
