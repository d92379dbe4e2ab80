// A few threads for what must not hold the io thread: parsing bodies, chat templates, tokenising. First in, first out;
// the queue is bounded by the number of connections. Post from any thread; what is queued at destruction is dropped. What a
// task throws ends that task alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread_role.h"

namespace tactus::serve {

class WorkerPool {
 public:
  explicit WorkerPool(int threads) {
    threads_.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (...) {
      Stop();   // those that came, or their destructors end the process
      throw;
    }
  }
  ~WorkerPool() { Stop(); }
  // Finishes the tasks that run, drops the rest, joins.
  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      tasks_.clear();
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // True: nothing is queued and nothing runs, within the time.
  bool WaitUntilIdle(DurationNs timeout_ns) {
    const std::chrono::nanoseconds time(std::min(timeout_ns, 24 * 3600 * kSecond));  // a longer one may overflow inside
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, time, [this] { return tasks_.empty() && running_ == 0; });
  }
  void Post(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
  }

 private:
  void Work() {
    SetThreadRole(ThreadRole::kService, "tactus-parse");
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      ++running_;
      {
        std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        try {
          task();
        } catch (...) {  // whoever waits for it learns of it as the task lets go of what it holds
        }
      }
      lock.lock();
      if (--running_ == 0 && tasks_.empty()) idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_, idle_;
  std::deque<std::function<void()>> tasks_;
  int running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tactus::serve
