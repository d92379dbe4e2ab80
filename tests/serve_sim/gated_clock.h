// A virtual clock that also gates the engine's thread: a pass of the step loop begins by reading the time, and NowNs
// blocks until the driver lets the pass begin. So the driver knows when a pass has ended (the loop reads the time
// again), and a server's run has the same instants as its simulation.
//
// Thread rule: the driver's calls from one thread, NowNs from any. Nothing waits longer than kGateLimit; a loop that
// does not return in that time fails with the instant in the message.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "tactus/status.h"

namespace tactus {

inline constexpr std::chrono::seconds kGateLimit{10};  // a wait normally takes milliseconds

class GatedClock final : public Clock {
 public:
  TimeNs NowNs() override {
    std::unique_lock lock(mutex_);
    if (!OnEngineThread()) return now_ns_;
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_ || begun_ < allowed_; });  // Open is called even after a failure
    waiting_ = false;
    ++begun_;
    return now_ns_;
  }

  void AdvanceTo(TimeNs t_ns) {
    std::lock_guard lock(mutex_);
    if (t_ns > now_ns_) now_ns_ = t_ns;
  }
  // The time, without gating, also for the engine's thread.
  TimeNs Peek() {
    std::lock_guard lock(mutex_);
    if (open_) now_ns_ += kSecond;
    return now_ns_;
  }
  // Lets the loop run one pass, and returns after it.
  Status Pass() {
    std::unique_lock lock(mutex_);
    TACTUS_RETURN_IF_ERROR(AwaitLoop(&lock, "has not read the time"));
    ++allowed_;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kGateLimit, [this] { return begun_ == allowed_; }))
      return Internal("the pass at " + std::to_string(now_ns_) + " ns did not begin");
    return AwaitLoop(&lock, "did not return from its pass");
  }
  // From now on it blocks no thread and advances at every read, so that steps in flight end and the engine can close.
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  static bool OnEngineThread() {
    char name[16] = {};
    return pthread_getname_np(pthread_self(), name, sizeof name) == 0 && std::strcmp(name, "tactus-engine") == 0;
  }
  Status AwaitLoop(std::unique_lock<std::mutex>* lock, const char* otherwise) {
    if (changed_.wait_for(*lock, kGateLimit, [this] { return waiting_; })) return Status();
    return Internal("at " + std::to_string(now_ns_) + " ns the step loop " + otherwise);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  TimeNs now_ns_ = 0;
  int64_t allowed_ = 0, begun_ = 0;
  bool waiting_ = false, open_ = false;
};

}  // namespace tactus
