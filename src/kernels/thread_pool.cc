// How a job is handed out: `remaining_` counts tasks not yet claimed and is claimed by compare-and-swap, so a claim
// only ever succeeds for the job that is current. A claimed task keeps the job's fields in place, because Run does not
// return before every task is done. A worker that wakes late therefore finds either work of the current job or nothing.
#include "kernels/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread_role.h"

namespace tactus::kernels {
namespace {

constexpr DurationNs kSpin = 50 * kMicrosecond;

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits for `ready` for at most kSpin; the clock is read only every 32 pauses.
template <class Ready>
bool SpinUntil(Clock& clock, Ready ready) {
  const TimeNs end = clock.NowNs() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (clock.NowNs() < end);
  return ready();
}

}  // namespace

struct ThreadPool::State {
  explicit State(Clock& clock_of_waits) : clock(clock_of_waits) {}

  Clock& clock;
  // One job. Written by Run while nothing is claimed and nothing is running.
  Thunk thunk = nullptr;
  void* self = nullptr;
  int64_t tasks = 0;
  // On cache lines of their own: both are written by every thread.
  alignas(64) std::atomic<int64_t> remaining{0};
  alignas(64) std::atomic<int64_t> done{0};
  alignas(64) std::atomic<int32_t> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable finished;
  std::vector<std::thread> workers;

  bool Claim(int64_t* task) {
    int64_t left = remaining.load(std::memory_order_acquire);
    while (left > 0) {
      if (remaining.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        *task = tasks - left;
        return true;
      }
    }
    return false;
  }

  // Claims until nothing is left; returns after its tasks have been counted as done.
  void Work(int32_t thread) {
    int64_t task, count = 0;
    int64_t total = 0;
    while (Claim(&task)) {
      total = tasks;
      thunk(self, task, thread);
      ++count;
    }
    if (count == 0) return;
    if (done.fetch_add(count) + count == total && caller_sleeps.load()) {
      std::lock_guard<std::mutex> lock(mutex);
      finished.notify_one();
    }
  }

  void WorkerLoop(int32_t thread) {
    SetThreadRole(ThreadRole::kCompute, "tactus-compute");
    auto ready = [this] { return remaining.load() > 0 || stop.load(); };
    while (true) {
      if (!SpinUntil(clock, ready)) {
        std::unique_lock<std::mutex> lock(mutex);
        sleepers.fetch_add(1);
        work.wait(lock, ready);
        sleepers.fetch_sub(1);
      }
      if (stop.load()) return;
      Work(thread);
    }
  }

  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stop.store(true);
    }
    work.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int32_t threads, Clock& clock) : threads_(threads), state_(std::make_unique<State>(clock)) {
  TACTUS_CHECK_MSG(threads >= 1, "a thread pool needs at least one thread");
  state_->workers.reserve(static_cast<size_t>(threads));
  for (int32_t i = 1; i < threads; ++i) {
    try {
      state_->workers.emplace_back([state = state_.get(), i] { state->WorkerLoop(i); });
    } catch (const std::system_error& e) {
      state_->Stop();  // those that came, or their destructors end the process
      throw std::system_error(e.code(), "compute thread " + std::to_string(i + 1) + " of " + std::to_string(threads));
    }
  }
}

ThreadPool::~ThreadPool() {
  state_->Stop();
}

void ThreadPool::Run(int64_t tasks, Thunk thunk, void* self) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) thunk(self, task, 0);
    return;
  }
  ++barriers_;
  State& s = *state_;
  s.thunk = thunk;
  s.self = self;
  s.tasks = tasks;
  s.done.store(0);
  s.remaining.store(tasks);
  if (s.sleepers.load() > 0) {
    {
      std::lock_guard<std::mutex> lock(s.mutex);
    }
    s.work.notify_all();
  }
  s.Work(0);
  auto all_done = [&s] { return s.done.load() == s.tasks; };
  if (SpinUntil(s.clock, all_done)) return;
  std::unique_lock<std::mutex> lock(s.mutex);
  s.caller_sleeps.store(true);
  s.finished.wait(lock, all_done);
  s.caller_sleeps.store(false);
}

}  // namespace tactus::kernels
