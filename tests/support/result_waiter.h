// Waits for results of an executor.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/executor.h"

namespace tactus::test {

// Waits for the wake-up alone, like the engine: a missing call fails the step after half a minute. The last call may
// come after its result was polled, so the state outlives the waiter.
class ResultWaiter {
 public:
  explicit ResultWaiter(Executor& executor) : executor_(executor) {
    executor.SetWakeup([state = state_] {
      std::lock_guard<std::mutex> lock(state->mutex);
      ++state->calls;
      state->ready.notify_one();
    });
  }
  StepResult Next() {
    StepResult result;
    while (!executor_.Poll(&result)) {
      std::unique_lock<std::mutex> lock(state_->mutex);
      if (!state_->ready.wait_for(lock, std::chrono::seconds(30), [this] { return state_->calls > 0; })) {
        ADD_FAILURE() << "no wake-up within 30 s, and no result";
        result.status = Internal("no wake-up");
        return result;
      }
      --state_->calls;
    }
    return result;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    int64_t calls = 0;
  };
  Executor& executor_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace tactus::test
