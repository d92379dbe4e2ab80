// A few threads for work that must not block the io thread: parsing bodies, chat templates, tokenising. First in, first
// out, but with two or more threads one is reserved for light tasks, so that large bodies do not delay small ones. A
// task that waits for other threads is marked by Waiting; meanwhile another task runs, if necessary on an extra thread.
// Tasks that may wait for long are posted with PostInTurn: each client has a queue, and clients take turns. Such a task
// counts as heavy while it computes, and the extra threads limit how many may run. The queues are bounded by the number
// of connections. Post from any thread; tasks queued at destruction are dropped. An exception ends only its own task.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_role.h"

namespace tactus {

class WorkerPool {
 public:
  explicit WorkerPool(int threads, const char* name = "tactus-parse")
      : name_(name),
        at_once_(static_cast<size_t>(threads)),
        most_heavy_(std::max<size_t>(1, static_cast<size_t>(threads) - 1)),
        most_of_client_(std::max<size_t>(4, at_once_)),
        most_in_turn_(4 * most_of_client_) {
    threads_.reserve(at_once_ + most_in_turn_);
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (...) {
      Stop();  // joins started threads; their destructors would end the process
      throw;
    }
  }
  ~WorkerPool() { Stop(); }

  // During its lifetime the current task does not compute. No effect outside of pool threads.
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

  // Finishes running tasks, drops queued ones, joins.
  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      light_.clear();
      heavy_.clear();
      turns_.clear();
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // True: no task is queued or running within the time.
  bool WaitUntilIdle(DurationNs timeout_ns) {
    const std::chrono::nanoseconds time(std::min(timeout_ns, 24 * 3600 * kSecond));  // a longer one may overflow inside
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, time, [this] { return Idle(); });
  }
  void Post(std::function<void()> task, bool heavy = false) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      (heavy ? heavy_ : light_).push_back({posted_++, std::move(task)});
    }
    ready_.notify_one();
  }
  // Posts a task of a client: clients take turns, and a limited number of a client's tasks run at the same time.
  void PostInTurn(const std::string& client, std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      const auto [turn, is_new] = turns_.try_emplace(client);
      if (is_new) turn->second.last = turns_taken_;  // a returning client does not overtake waiting ones
      try {
        turn->second.tasks.push_back({posted_, std::move(task)});
      } catch (...) {
        if (turn->second.tasks.empty() && turn->second.running == 0) turns_.erase(turn);
        throw;
      }
      ++posted_;
    }
    ready_.notify_one();
  }

 private:
  struct Task {
    int64_t number;  // order of posting
    std::function<void()> run;
  };
  struct Turn {
    std::deque<Task> tasks;
    size_t running = 0;
    int64_t last = 0;  // value of turns_taken_ at its last turn
  };
  using Turns = std::map<std::string, Turn>;

  void BeginWaiting() {
    {
      const std::lock_guard lock(mutex_);
      ++waiting_;
      in_turn_waiting_ += runs_in_turn_;
      if (stopping_) return;
      if (running_ == threads_.size() && threads_.size() < at_once_ + most_in_turn_) {
        try {
          threads_.emplace_back([this] { Work(); });
        } catch (...) {  // without an extra thread the other tasks wait
        }
      }
    }
    ready_.notify_one();
  }
  void EndWaiting() {
    const std::lock_guard lock(mutex_);
    --waiting_;
    in_turn_waiting_ -= runs_in_turn_;
  }
  bool Idle() const { return light_.empty() && heavy_.empty() && turns_.empty() && running_ == 0; }
  bool MayRun() {
    return running_ - waiting_ < at_once_ && (!light_.empty() || HeavyMayRun() || NextTurn() != turns_.end());
  }
  bool LeavesOneThread() const { return heavy_running_ + in_turn_running_ - in_turn_waiting_ < most_heavy_; }
  bool HeavyMayRun() const { return !heavy_.empty() && LeavesOneThread(); }
  // Among clients with a task that may run, the one with the oldest last turn; end: none.
  Turns::iterator NextTurn() {
    auto next = turns_.end();
    if (in_turn_running_ == most_in_turn_ || !LeavesOneThread()) return next;
    const auto place = [](const Turn& one) { return std::pair(one.last, one.tasks.front().number); };
    for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
      const Turn& one = turn->second;
      if (one.tasks.empty() || one.running == most_of_client_) continue;
      if (next == turns_.end() || place(one) < place(next->second)) next = turn;
    }
    return next;
  }
  static std::function<void()> Take(std::deque<Task>* tasks) {
    std::function<void()> task = std::move(tasks->front().run);
    tasks->pop_front();
    return task;
  }
  // Runs the task without the mutex, and destroys it before its place is free.
  void RunOne(std::unique_lock<std::mutex>* lock, std::function<void()> task) {
    lock->unlock();
    try {
      task();
    } catch (...) {  // the destruction of the task notifies its waiter
    }
    task = nullptr;
    lock->lock();
  }
  void Work() {
    SetThreadRole(ThreadRole::kService, name_);
    current_ = this;
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stopping_ || MayRun(); });
      if (stopping_) return;
      constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
      const auto turn = NextTurn();
      const int64_t light_number = light_.empty() ? kNone : light_.front().number;
      const int64_t heavy_number = HeavyMayRun() ? heavy_.front().number : kNone;
      const int64_t turn_number = turn == turns_.end() ? kNone : turn->second.tasks.front().number;
      ++running_;
      if (turn_number < std::min(light_number, heavy_number)) {
        ++in_turn_running_;
        ++turn->second.running;
        turn->second.last = ++turns_taken_;
        runs_in_turn_ = true;
        RunOne(&lock, Take(&turn->second.tasks));
        runs_in_turn_ = false;
        --in_turn_running_;
        // Stop erases turns_, so the iterator may be invalid.
        if (!stopping_ && --turn->second.running == 0 && turn->second.tasks.empty()) turns_.erase(turn);
      } else {
        const bool heavy = heavy_number < light_number;
        heavy_running_ += heavy;
        RunOne(&lock, Take(heavy ? &heavy_ : &light_));
        heavy_running_ -= heavy;
      }
      if (!heavy_.empty() || !turns_.empty()) ready_.notify_one();  // one of them may be able to run now
      --running_;
      if (Idle()) idle_.notify_all();
    }
  }

  const char* const name_;
  const size_t at_once_, most_heavy_;
  const size_t most_of_client_, most_in_turn_;  // most_in_turn_ is also the limit of extra threads
  std::mutex mutex_;
  std::condition_variable ready_, idle_;
  std::deque<Task> light_, heavy_;
  Turns turns_;  // clients with queued or running tasks
  int64_t posted_ = 0, turns_taken_ = 0;
  size_t running_ = 0, heavy_running_ = 0, in_turn_running_ = 0, waiting_ = 0, in_turn_waiting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
  inline static thread_local WorkerPool* current_ = nullptr;
  inline static thread_local bool runs_in_turn_ = false;
};

}  // namespace tactus
