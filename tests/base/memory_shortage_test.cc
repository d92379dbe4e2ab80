#include "base/memory_shortage.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace tactus {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// In a process of its own, whose address space ends a little beyond what it has.
void RunShort(void (*run)(std::vector<std::unique_ptr<char[]>>* all)) {
  WaitForMemoryWhereNeeded(SystemClock());
  std::vector<std::unique_ptr<char[]>> all;
  all.reserve(200'000);
  const rlimit limit{400 * kMiB, 400 * kMiB};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(3);
  for (size_t bytes = 64 * kMiB; bytes >= 4096; bytes /= 2) {
    while (char* block = new (std::nothrow) char[bytes]) all.emplace_back(block);
  }
  run(&all);
}

TEST(MemoryShortage, AThreadOfOneRequestGetsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers map terabytes";
#endif
  EXPECT_EXIT(RunShort([](std::vector<std::unique_ptr<char[]>>*) {
                try {
                  std::vector<char> more(kMiB);
                  std::exit(1);
                } catch (const std::bad_alloc&) {
                  std::exit(0);
                }
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST(MemoryShortage, AThreadThatAllDependOnGetsTheReserveThenWaits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers map terabytes";
#endif
  EXPECT_EXIT(RunShort([](std::vector<std::unique_ptr<char[]>>* all) {
                const NeedsMemory needs_memory;
                auto first = std::make_unique<char[]>(6 * kMiB);  // of the reserve
                all->pop_back();
                all->front().reset();  // another thread would
                auto second = std::make_unique<char[]>(6 * kMiB);
                first.reset();
                second.reset();
                KeepMemoryInReserve();
                auto third = std::make_unique<char[]>(kMiB);
                std::exit(third == nullptr ? 1 : 0);
              }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tactus
