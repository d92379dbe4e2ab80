// A few threads for what must not hold the io thread: parsing bodies, chat templates, tokenising. First in, first out,
// but heavy tasks leave one thread to the others (where there are two), so that whoever sends large bodies delays none
// who does not. A task that waits for other threads says so (Waiting); meanwhile another one runs in its place, on a
// thread beyond the pool's where need be. The queue is bounded by the number of connections. Post from any thread; what
// is queued at destruction is dropped. What a task throws ends that task alone.
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
      : name_(name),
        at_once_(static_cast<size_t>(threads)),
        most_heavy_(std::max<size_t>(1, static_cast<size_t>(threads) - 1)) {
    threads_.reserve(at_once_ + kMostSpare);
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (...) {
      Stop();  // those that came, or their destructors end the process
      throw;
    }
  }
  ~WorkerPool() { Stop(); }

  // While this lives, the task that made it computes nothing. Of no effect on other threads than a pool's.
  class Waiting {
   public:
    Waiting() : pool_(current_) {
      if (pool_ != nullptr) pool_->BeginWaiting();
    }
    ~Waiting() {
      if (pool_ != nullptr) pool_->EndWaiting();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    WorkerPool* const pool_;
  };

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
  static constexpr size_t kMostSpare = 8;  // threads beyond those that compute

  void BeginWaiting() {
    {
      const std::lock_guard lock(mutex_);
      ++waiting_;
      if (stopping_) return;
      if (running_ == threads_.size() && threads_.size() < at_once_ + kMostSpare) {
        try {
          threads_.emplace_back([this] { Work(); });
        } catch (...) {  // then the others wait as well
        }
      }
    }
    ready_.notify_one();
  }
  void EndWaiting() {
    const std::lock_guard lock(mutex_);
    --waiting_;
  }
  bool MayRun() const { return running_ - waiting_ < at_once_ && (!light_.empty() || HeavyMayRun()); }
  bool HeavyMayRun() const { return !heavy_.empty() && heavy_running_ < most_heavy_; }
  void Work() {
    SetThreadRole(ThreadRole::kService, name_);
    current_ = this;
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stopping_ || MayRun(); });
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
  const size_t at_once_, most_heavy_;
  std::mutex mutex_;
  std::condition_variable ready_, idle_;
  std::deque<Task> light_, heavy_;
  int64_t posted_ = 0;
  size_t running_ = 0, heavy_running_ = 0, waiting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
  inline static thread_local WorkerPool* current_ = nullptr;
};

}  // namespace tactus
