#include "grammar/deep_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

namespace tactus::grammar {
namespace {

constexpr size_t kStack = size_t{64} << 20;
#ifdef __SANITIZE_THREAD__
constexpr int kLevels = 50'000;  // ThreadSanitizer's own stack holds 65,536 calls
#else
constexpr int kLevels = 100'000;  // more than the 8 MiB of a usual stack hold
#endif

// Some 200 bytes a level, and not optimised away.
int Deep(int levels) {
  volatile char room[128] = {};
  room[0] = static_cast<char>(levels);
  return levels == 0 ? 0 : Deep(levels - 1) + room[0] - room[0] + 1;
}

TEST(DeepCalls, ACallHasALargeStack) {
  DeepCalls calls(1, kStack);
  int depth = 0;
  const auto end = calls.Run([&] { depth = Deep(kLevels); }, 60'000, {});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, DeepCalls::End::kDone);
  EXPECT_EQ(depth, kLevels);
}

TEST(DeepCalls, OneThatTakesTooLongIsLeftBehindAndKeepsItsPlace) {
  const auto go_on = std::make_shared<std::atomic<bool>>(false), ended = std::make_shared<std::atomic<bool>>(false);
  {
    DeepCalls calls(1, kStack);
    const auto slow = [go_on, ended] {
      while (!*go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      *ended = true;
    };
    EXPECT_EQ(*calls.Run(slow, 10, {}), DeepCalls::End::kTooLong);
    EXPECT_EQ(*calls.Run([] {}, 10, {}), DeepCalls::End::kNoPlace);
    std::atomic<bool> stop = true;
    EXPECT_EQ(*calls.Run([] {}, 60'000, StopToken(&stop)), DeepCalls::End::kStopped);
  }
  EXPECT_FALSE(*ended);  // nobody waited for it
  *go_on = true;
  while (!*ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(DeepCalls, OneThatBecomesNeedlessWhileItWaitsIsNotMade) {
  DeepCalls calls(1, kStack);
  std::atomic<bool> started = false, go_on = false, needless = false, made = false;
  std::thread first([&] {
    const auto slow = [&] {
      started = true;
      while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      needless = true;
    };
    EXPECT_EQ(*calls.Run(slow, 60'000, {}), DeepCalls::End::kDone);
  });
  while (!started) std::this_thread::yield();
  std::thread second([&] {
    const auto end = calls.Run([&] { made = true; }, 60'000, {}, [&] { return needless.load(); });
    EXPECT_EQ(*end, DeepCalls::End::kNeedless);
  });
  go_on = true;
  first.join();
  second.join();
  EXPECT_FALSE(made);
}

TEST(DeepCalls, WithoutMemoryItSaysSo) {
  DeepCalls calls(1, kStack);
  EXPECT_EQ(calls.Run([] { throw std::bad_alloc(); }, 60'000, {}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*calls.Run([] {}, 60'000, {}), DeepCalls::End::kDone);
  DeepCalls impossible(1, size_t{1} << 60);
  EXPECT_EQ(impossible.Run([] {}, 60'000, {}).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tactus::grammar
