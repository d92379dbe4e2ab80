#include "language/grammar/deep_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tactus::language {
namespace {

constexpr size_t kStack = size_t{64} << 20;
#ifdef __SANITIZE_THREAD__
constexpr int kLevels = 50'000;  // ThreadSanitizer's shadow stack holds 65,536 calls
#else
constexpr int kLevels = 100'000;  // more than fit a usual stack of 8 MiB
#endif

// About 200 bytes per level, not optimised away.
int Deep(int levels) {
  volatile char room[128] = {};
  room[0] = static_cast<char>(levels);
  return levels == 0 ? 0 : Deep(levels - 1) + room[0] - room[0] + 1;
}

TEST(DeepCalls, ACallHasALargeStack) {
  DeepCalls calls(1, kStack);
  int depth = 0;
  const auto end = calls.Run([&] { depth = Deep(kLevels); }, {.timeout_ms = 60'000});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, DeepCalls::End::kDone);
  EXPECT_EQ(depth, kLevels);
}

TEST(DeepCalls, AnAbandonedCallKeepsItsPlaceUntilItEnds) {
  const auto go_on = std::make_shared<std::atomic<bool>>(false), ended = std::make_shared<std::atomic<bool>>(false);
  {
    DeepCalls calls(1, kStack);
    const auto slow = [go_on, ended] {
      while (!*go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      *ended = true;
    };
    EXPECT_EQ(*calls.Run(slow, {.timeout_ms = 10}), DeepCalls::End::kTooLong);
    EXPECT_EQ(*calls.Run([] {}, {.timeout_ms = 10}), DeepCalls::End::kNoPlace);
    std::atomic<bool> stop = true;
    EXPECT_EQ(*calls.Run([] {}, {.timeout_ms = 60'000, .stop = StopToken(&stop)}), DeepCalls::End::kStopped);
  }
  EXPECT_FALSE(*ended);  // it was not waited for
  *go_on = true;
  while (!*ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(DeepCalls, ACallThatBecomesNeedlessWhileWaitingIsNotMade) {
  DeepCalls calls(1, kStack);
  std::atomic<bool> started = false, go_on = false, needless = false, made = false;
  std::thread first([&] {
    const auto slow = [&] {
      started = true;
      while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      needless = true;
    };
    EXPECT_EQ(*calls.Run(slow, {.timeout_ms = 60'000}), DeepCalls::End::kDone);
  });
  while (!started) std::this_thread::yield();
  std::thread second([&] {
    const auto end =
        calls.Run([&] { made = true; }, {.timeout_ms = 60'000, .needless = [&] { return needless.load(); }});
    EXPECT_EQ(*end, DeepCalls::End::kNeedless);
  });
  go_on = true;
  first.join();
  second.join();
  EXPECT_FALSE(made);
}

// One client's calls fill half of all places.
TEST(DeepCalls, AClientHasHalfOfThePlacesAndWaitsForItsTurn) {
  DeepCalls calls(4, kStack);
  std::atomic<int> running = 0;
  std::atomic<bool> go_on = false;
  std::vector<std::thread> hostile;
  for (int i = 0; i < 6; ++i) {
    hostile.emplace_back([&] {
      const auto slow = [&] {
        ++running;
        while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      EXPECT_EQ(*calls.Run(slow, {.timeout_ms = 60'000, .client = "hostile"}), DeepCalls::End::kDone);
    });
  }
  while (running < 2) std::this_thread::yield();
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(*calls.Run([] {}, {.timeout_ms = 60'000, .client = "honest"}), DeepCalls::End::kDone);
  EXPECT_EQ(running, 2);
  go_on = true;
  for (std::thread& thread : hostile) thread.join();
  int64_t waited_ms = 0;
  const auto slow = [] { std::this_thread::sleep_for(std::chrono::milliseconds(60)); };
  EXPECT_TRUE(calls.Run(slow, {.timeout_ms = 60'000, .waited_ms = &waited_ms}).ok());
  EXPECT_GT(waited_ms, 0);
}

TEST(DeepCalls, WaitingCallsGoToTheClientWithTheLeastRecentCall) {
  DeepCalls calls(2, kStack);  // a client has at most one of the two places
  std::atomic<bool> first_ends = false, held_ends = false;
  std::mutex mutex;
  std::string order;
  const auto call = [&](const char* client, const std::atomic<bool>* until) {
    return std::thread([&, client, until] {
      const auto run = [&, client, until] {
        while (until != nullptr && !*until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::lock_guard lock(mutex);
        order += client;
      };
      EXPECT_EQ(*calls.Run(run, {.timeout_ms = 60'000, .client = client}), DeepCalls::End::kDone);
    });
  };
  const auto settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  std::vector<std::thread> threads;
  threads.push_back(call("a", &first_ends));
  settle();
  std::thread held = call("b", &held_ends);  // occupies the other place
  settle();
  for (const char* client : {"a", "a", "a", "c"}) {
    threads.push_back(call(client, nullptr));
    settle();
  }
  first_ends = true;
  for (std::thread& thread : threads) thread.join();
  held_ends = true;
  held.join();
  EXPECT_EQ(order, "aacaab") << "c arrived last, and a had a turn since then";
}

TEST(DeepCalls, AnExceptionEndsItsCallAlone) {
  DeepCalls calls(1, kStack);
  EXPECT_EQ(calls.Run([] { throw std::runtime_error("x"); }, {.timeout_ms = 60'000}).status().code(),
            StatusCode::kInternal);
  EXPECT_EQ(*calls.Run([] {}, {.timeout_ms = 60'000}), DeepCalls::End::kDone);
}

TEST(DeepCalls, MissingMemoryIsReported) {
  DeepCalls calls(1, kStack);
  EXPECT_EQ(calls.Run([] { throw std::bad_alloc(); }, {.timeout_ms = 60'000}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(*calls.Run([] {}, {.timeout_ms = 60'000}), DeepCalls::End::kDone);
  DeepCalls impossible(1, size_t{1} << 60);
  EXPECT_EQ(impossible.Run([] {}, {.timeout_ms = 60'000}).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tactus::language
