// Wakes the sleeping loop from any thread. Shared with the executor, whose threads may make one more call after the
// loop's end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace tactus::core {

class WakeUp {
 public:
  // Any thread.
  void Signal() {
    if (signalled_.exchange(true, std::memory_order_acq_rel)) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
    }  // the engine thread is not between its check and its wait
    condition_.notify_one();
  }

  // Engine thread, before the pass that looks for work. An exchange, because a plain store could become visible after
  // that pass and erase the signal of input that arrived meanwhile.
  void Arm() { signalled_.exchange(false, std::memory_order_acq_rel); }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    condition_.wait(lock, [this] { return signalled_.load(std::memory_order_acquire); });
  }

 private:
  std::atomic<bool> signalled_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
};

}  // namespace tactus::core
