// How a job is distributed: `remaining_` counts unclaimed tasks and is decremented by compare-and-swap, so a claim
// succeeds only for the current job. A claimed task keeps the job's fields valid, because Run returns only after every
// task is done. A worker that wakes late therefore finds either work of the current job or none.
#include "compute/kernels/thread_pool.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread_role.h"

namespace tactus::compute {
namespace {

constexpr DurationNs kSpin = 50 * kMicrosecond;
constexpr DurationNs kLongJob = 4 * kMillisecond;  // on one thread alone; about a time slice of the system

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

// The core of each thread, where the system reports it: those of members, while other threads are excluded.
constexpr int kNoCore = -1;

// Moves the calling thread off some of its cores, and later allows all of them again.
class Elsewhere {
 public:
  template <class Cores>
  void KeepOff(const Cores& cores, int32_t count) {
    if (!away_ && sched_getaffinity(0, sizeof own_, &own_) != 0) return;  // more cores than a cpu_set_t holds
    cpu_set_t left = own_;
    for (int32_t i = 0; i < count; ++i) {
      const int core = cores[static_cast<size_t>(i)].load(std::memory_order_relaxed);
      if (core >= 0 && core < CPU_SETSIZE) CPU_CLR(static_cast<size_t>(core), &left);
    }
    if (CPU_COUNT(&left) > 0) away_ |= sched_setaffinity(0, sizeof left, &left) == 0;
  }
  void Return() {
    if (away_) (void)sched_setaffinity(0, sizeof own_, &own_);
    away_ = false;
  }

 private:
  cpu_set_t own_{};
  bool away_ = false;
};

pid_t ThisThread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

}  // namespace

struct ThreadPool::State {
  State(int32_t threads, Clock& clock_of_waits, WaitedFn waited_fn)
      : clock(clock_of_waits),
        waited(waited_fn),
        ids(static_cast<size_t>(threads)),
        cores(static_cast<size_t>(threads)),
        team(threads),
        members(threads),
        sharing(threads) {
    for (std::atomic<int>& core : cores) core.store(kNoCore);
  }

  Clock& clock;
  const WaitedFn waited;
  std::vector<std::atomic<pid_t>> ids;  // of the started threads
  std::vector<std::atomic<int>> cores;
  TeamSize team;                 // used by the caller's thread
  std::atomic<int32_t> members;  // threads that share every job; changed with the mutex held
  std::atomic<int32_t> sharing;  // threads that share the current job
  // One job. Written by Run while no task is claimed or running.
  Thunk thunk = nullptr;
  void* self = nullptr;
  int64_t tasks = 0;
  // On separate cache lines: every thread writes both.
  alignas(64) std::atomic<int64_t> remaining{0};
  alignas(64) std::atomic<int64_t> done{0};
  alignas(64) std::atomic<int32_t> sleepers{0};  // sleeping members
  std::atomic<int32_t> bystanders{0};            // other sleeping threads
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable long_work;
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

  // Claims tasks until none is left; returns after its tasks have been counted as done.
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
    ids[static_cast<size_t>(thread)].store(ThisThread());
    Elsewhere elsewhere;
    auto ready = [this, thread] { return (remaining.load() > 0 && thread < sharing.load()) || stop.load(); };
    while (true) {
      if (!SpinUntil(clock, ready)) Sleep(thread, ready);
      if (stop.load()) return;
      const int32_t count = members.load();
      if (thread >= count)
        elsewhere.KeepOff(cores, count);
      else
        elsewhere.Return();
      NoteCore(thread, count);
      if (ready()) Work(thread);  // a change of members also wakes the thread
    }
  }

  template <class Ready>
  void Sleep(int32_t thread, Ready ready) {
    std::unique_lock<std::mutex> lock(mutex);
    const bool member = thread < members.load();
    std::atomic<int32_t>& asleep = member ? sleepers : bystanders;
    asleep.fetch_add(1);
    (member ? work : long_work).wait(lock, [&] { return ready() || member != (thread < members.load()); });
    asleep.fetch_sub(1);
  }

  void NoteCore(int32_t thread, int32_t count) {
    if (thread < count && count < static_cast<int32_t>(ids.size()))
      cores[static_cast<size_t>(thread)].store(sched_getcpu(), std::memory_order_relaxed);
  }

  // Called by the caller's thread between jobs.
  void Look(TimeNs now_ns) {
    ids[0].store(ThisThread());
    team.Look(now_ns, waited(ids));
    if (team.size() == members.load()) return;
    {
      std::lock_guard<std::mutex> lock(mutex);
      members.store(team.size());
    }
    work.notify_all();
    long_work.notify_all();
  }

  void Wake() {
    const bool some = sleepers.load() > 0, others = sharing.load() > members.load() && bystanders.load() > 0;
    if (!some && !others) return;
    {
      std::lock_guard<std::mutex> lock(mutex);  // a thread about to sleep has seen the job, or already sleeps and is
                                                // woken below
    }
    if (some) work.notify_all();
    if (others) long_work.notify_all();
  }

  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stop.store(true);
    }
    work.notify_all();
    long_work.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int32_t threads, Clock& clock, WaitedFn waited)
    : threads_(threads), state_(std::make_unique<State>(std::max(1, threads), clock, waited)) {
  TACTUS_CHECK_MSG(threads >= 1, "a thread pool needs at least one thread");
  state_->workers.reserve(static_cast<size_t>(threads));
  for (int32_t i = 1; i < threads; ++i) {
    try {
      state_->workers.emplace_back([state = state_.get(), i] { state->WorkerLoop(i); });
    } catch (const std::system_error& e) {
      state_->Stop();  // joins the started threads: their destructors would end the process
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
  const TimeNs begin_ns = s.clock.NowNs();
  if (begin_ns >= s.team.next_ns()) s.Look(begin_ns);
  const int32_t members = s.members.load();
  int32_t sharing = threads_;
  int64_t first = 0;
  if (members < threads_) {  // the first task's time predicts the job's length
    s.NoteCore(0, members);
    const TimeNs task_ns = s.clock.NowNs();
    thunk(self, first++, 0);
    if ((s.clock.NowNs() - task_ns) * tasks < kLongJob) sharing = members;
  }
  s.sharing.store(sharing);
  s.done.store(first);
  s.remaining.store(tasks - first);
  s.Wake();
  s.Work(0);
  auto all_done = [&s] { return s.done.load() == s.tasks; };
  if (SpinUntil(s.clock, all_done)) return;
  std::unique_lock<std::mutex> lock(s.mutex);
  s.caller_sleeps.store(true);
  s.finished.wait(lock, all_done);
  s.caller_sleeps.store(false);
}

}  // namespace tactus::compute
