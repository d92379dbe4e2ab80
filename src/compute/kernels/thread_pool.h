// The compute threads of one executor. ParallelFor claims tasks dynamically (an atomic counter), so a core lost to
// another process delays one task, not a step; results must not depend on which thread runs a task. Waits spin for at
// most 50 us, then sleep; idle threads do not spin. Where other processes take cores, some threads leave short jobs to
// the others (compute/kernels/team_size.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "compute/kernels/team_size.h"

namespace tactus::compute {

class ThreadPool {
 public:
  // threads >= 1; the calling thread is one of them. `clock` bounds the spinning and outlives the pool. Throws
  // std::system_error when the system refuses a thread. `waited` returns how long threads had no core.
  ThreadPool(int32_t threads, Clock& clock, WaitedFn waited = WaitedForCores);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return threads_; }
  // Number of jobs shared by threads so far; each ends in a barrier, a step's cost beside its operators. The caller's
  // thread only.
  int64_t barriers() const { return barriers_; }

  // Runs fn(task, thread) for task in [0, tasks), thread in [0, threads()); returns when all are done. Not reentrant;
  // one caller at a time. Fn is called through one function pointer: no allocation.
  template <class Fn>
  void ParallelFor(int64_t tasks, Fn&& fn) {
    auto thunk = [](void* self, int64_t task, int32_t thread) {
      (*static_cast<std::remove_reference_t<Fn>*>(self))(task, thread);
    };
    Run(tasks, thunk, const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Thunk = void (*)(void*, int64_t, int32_t);
  void Run(int64_t tasks, Thunk thunk, void* self);
  struct State;
  int32_t threads_;
  int64_t barriers_ = 0;
  std::unique_ptr<State> state_;
};

// Cores that this process may use, by affinity and cgroup quota; >= 1.
int32_t UsableCores();

}  // namespace tactus::compute
