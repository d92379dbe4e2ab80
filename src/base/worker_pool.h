// A few threads for what must not hold the io thread: parsing bodies, chat templates, tokenising. First in, first out,
// but heavy tasks leave one thread to the others (where there are two), so that whoever sends large bodies delays none
// who does not. The queue is bounded by the number of connections. Post from any thread; what is queued at destruction
// is dropped. What a task throws ends that task alone.
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

namespace tactus {

class WorkerPool {
 public:
  explicit WorkerPool(int threads, const char* name = "tactus-parse")
      : name_(name), most_heavy_(std::max<size_t>(1, static_cast<size_t>(threads) - 1)) {
    threads_.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (...) {
      Stop();  // those that came, or their destructors end the process
      throw;
    }
  }
  ~WorkerPool() { Stop(); }
  // Finishes the tasks that run, drops the rest, joins.
  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      light_.clear();
      heavy_.clear();
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // True: nothing is queued and nothing runs, within the time.
  bool WaitUntilIdle(DurationNs timeout_ns) {
    const std::chrono::nanoseconds time(std::min(timeout_ns, 24 * 3600 * kSecond));  // a longer one may overflow inside
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, time, [this] { return light_.empty() && heavy_.empty() && running_ == 0; });
  }
  void Post(std::function<void()> task, bool heavy = false) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      (heavy ? heavy_ : light_).push_back({posted_++, std::move(task)});
    }
    ready_.notify_one();
  }

 private:
  struct Task {
    int64_t number;  // in the order of Post
    std::function<void()> run;
  };
  bool HeavyMayRun() const { return !heavy_.empty() && heavy_running_ < most_heavy_; }
  void Work() {
    SetThreadRole(ThreadRole::kService, name_);
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stopping_ || !light_.empty() || HeavyMayRun(); });
      if (stopping_) return;
      const bool heavy = HeavyMayRun() && (light_.empty() || heavy_.front().number < light_.front().number);
      ++running_;
      heavy_running_ += heavy;
      {
        std::deque<Task>& tasks = heavy ? heavy_ : light_;
        const std::function<void()> task = std::move(tasks.front().run);
        tasks.pop_front();
        lock.unlock();
        try {
          task();
        } catch (...) {  // whoever waits for it learns of it as the task lets go of what it holds
        }
      }
      lock.lock();
      heavy_running_ -= heavy;
      if (heavy && !heavy_.empty()) ready_.notify_one();  // its turn may have come
      if (--running_ == 0 && light_.empty() && heavy_.empty()) idle_.notify_all();
    }
  }

  const char* const name_;
  const size_t most_heavy_;
  std::mutex mutex_;
  std::condition_variable ready_, idle_;
  std::deque<Task> light_, heavy_;
  int64_t posted_ = 0;
  size_t running_ = 0, heavy_running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tactus
