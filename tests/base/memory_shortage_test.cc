#include "base/memory_shortage.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace tactus {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Each call advances the time by 50 ms.
class FastClock final : public Clock {
 public:
  TimeNs NowNs() override { return now_ns_ += 50 * kMillisecond; }

 private:
  TimeNs now_ns_ = 0;
};

struct Shortage {
  std::vector<std::unique_ptr<char[]>> all;
  std::atomic<bool> free_soon{false}, freed{false};  // another thread frees 64 MiB
};

// For a child process: limits its address space to a little more than it uses.
void RunShort(void (*run)(Shortage* shortage)) {
  static FastClock clock;
  WaitForMemoryWhereNeeded(clock);
  Shortage shortage;
  auto& all = shortage.all;
  all.reserve(200'000);
  std::thread([&shortage] {
    while (!shortage.free_soon) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    shortage.freed = true;
    shortage.all.front().reset();
  }).detach();
  const rlimit limit{400 * kMiB, 400 * kMiB};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(3);
  for (size_t bytes = 64 * kMiB; bytes >= 4096; bytes /= 2) {
    while (char* block = new (std::nothrow) char[bytes]) all.emplace_back(block);
  }
  run(&shortage);
}

class MemoryShortage : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer maps terabytes of shadow memory, so an address space cannot be made to end at 400 MiB";
#endif
  }
};

TEST_F(MemoryShortage, AThreadOfOneRequestGetsAnError) {
  EXPECT_EXIT(RunShort([](Shortage*) {
                try {
                  std::vector<char> more(kMiB);
                  std::exit(1);
                } catch (const std::bad_alloc&) {
                  std::exit(0);
                }
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(MemoryShortage, AThreadThatAllDependOnWaitsUntilAnotherFreesMemory) {
  EXPECT_EXIT(RunShort([](Shortage* shortage) {
                const NeedsMemory needs_memory;
                auto first = std::make_unique<char[]>(6 * kMiB);  // from the reserve
                shortage->free_soon = true;
                auto second = std::make_unique<char[]>(32 * kMiB);
                std::exit(second != nullptr && shortage->freed ? 0 : 1);
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(MemoryShortage, AThreadThatAllDependOnGetsAnErrorAfterItsLongestWait) {
  EXPECT_EXIT(RunShort([](Shortage*) {
                const NeedsMemory needs_memory;
                try {
                  std::vector<char> more(size_t{64} << 20);
                  std::exit(1);
                } catch (const std::bad_alloc&) {
                  EndForWantOfMemory();
                }
              }),
              ::testing::ExitedWithCode(1), "no memory for 10 s; the process ends");
}

TEST_F(MemoryShortage, TheReserveIsRestoredOnceThereIsMemory) {
  EXPECT_EXIT(RunShort([](Shortage* shortage) {
                const NeedsMemory needs_memory;
                auto first = std::make_unique<char[]>(6 * kMiB);  // from the reserve
                shortage->all.pop_back();
                shortage->all.front().reset();  // as another thread would
                auto second = std::make_unique<char[]>(6 * kMiB);
                first.reset();
                second.reset();
                KeepMemoryInReserve();
                auto third = std::make_unique<char[]>(kMiB);
                std::exit(third == nullptr ? 1 : 0);
              }),
              ::testing::ExitedWithCode(0), "");
}

// The size of the process's address space.
size_t AddressSpaceBytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// For a child process: starts threads under a limit of 1000 MiB and ends with 0 if they reserve no arenas.
void RunThreads() {
  constexpr int kThreads = 6;
  constexpr size_t kStackBytes = 8 * kMiB, kArenaBytes = 64 * kMiB;
  const rlimit limit{1000 * kMiB, 1000 * kMiB};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(3);
  LimitArenas();
  const size_t before = AddressSpaceBytes();
  std::atomic<int> started{0};
  for (int i = 0; i < kThreads; ++i) {
    std::thread([&started] {
      const auto block = std::make_unique<char[]>(1000);
      ++started;
      while (block != nullptr) std::this_thread::sleep_for(std::chrono::seconds(1));
    }).detach();
  }
  while (started < kThreads) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const size_t grown = AddressSpaceBytes() - before;
  std::fprintf(stderr, "%d threads take %zu MiB\n", kThreads, grown / kMiB);
  std::_Exit(grown < kThreads * kStackBytes + kArenaBytes ? 0 : 1);
}

TEST_F(MemoryShortage, ThreadsReserveNoArenasWhereTheAddressSpaceIsLimited) {
  EXPECT_EXIT(RunThreads(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(ArenasWithin(400 * kMiB), 1);
  EXPECT_EQ(ArenasWithin(5000 * kMiB), 4);
}

}  // namespace
}  // namespace tactus
