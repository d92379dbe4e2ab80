// A limit for tests of code that could wait for ever: where a thread is never woken, nothing in its own process can end
// it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace tactus::test {

// As ctest's limits of sanitizer builds (cmake/TactusModule.cmake).
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kLimitFactor = 4;
#else
inline constexpr int kLimitFactor = 1;
#endif

// Ends the process with `what` if it lives longer than `seconds`, which no sound run comes near; sanitizers get more.
class TimeLimit {
 public:
  explicit TimeLimit(std::string what, int seconds = 30)
      : thread_([this, what = std::move(what), seconds = seconds * kLimitFactor] {
          std::unique_lock<std::mutex> lock(mutex_);
          if (over_.wait_for(lock, std::chrono::seconds(seconds), [this] { return ended_; })) return;
          std::fprintf(stderr, "FAILED after %d seconds: %s\n", seconds, what.c_str());
          std::fflush(nullptr);
          std::_Exit(1);
        }) {}
  ~TimeLimit() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace tactus::test
