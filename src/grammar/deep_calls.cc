#include "grammar/deep_calls.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>

#include "base/thread_role.h"

namespace tactus::grammar {
namespace {

// Between two looks at what nobody signals: the caller's stop token.
constexpr int64_t kLookMs = 5;

Status NoMemory() {
  return Status(StatusCode::kResourceExhausted, "no memory or thread to compile a rule with; try again later");
}

}  // namespace

struct DeepCalls::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
};

struct DeepCalls::Call {
  std::shared_ptr<Shared> shared;
  std::function<void()> function;
  bool done = false, no_memory = false, failed = false;  // under the mutex
};

DeepCalls::DeepCalls(int most_at_once, size_t stack_bytes)
    : most_(most_at_once), stack_bytes_(stack_bytes), shared_(std::make_shared<Shared>()) {}

// `start`: a shared_ptr of its own to the call.
void* DeepCalls::Main(void* start) {
  const std::unique_ptr<std::shared_ptr<Call>> owned(static_cast<std::shared_ptr<Call>*>(start));
  Call& call = **owned;
  SetThreadRole(ThreadRole::kService, "tactus-grammar");
  bool no_memory = false, failed = false;
  try {
    call.function();
  } catch (const std::bad_alloc&) {
    no_memory = true;
  } catch (...) {
    failed = true;
  }
  call.function = nullptr;
  const std::lock_guard lock(call.shared->mutex);
  call.done = true;
  call.no_memory = no_memory;
  call.failed = failed;
  --call.shared->running;
  call.shared->changed.notify_all();
  return nullptr;
}

Result<DeepCalls::End> DeepCalls::Run(std::function<void()> function, int64_t timeout_ms, StopToken stop,
                                      const std::function<bool()>& needless) {
  std::unique_lock lock(shared_->mutex);
  // Counts looks and no clock: what is waited for is work of this process.
  int64_t left_ms = timeout_ms;
  const auto wait = [&](auto&& over) {
    while (!over() && left_ms > 0 && !stop.stopped()) {
      if (shared_->changed.wait_for(lock, std::chrono::milliseconds(kLookMs)) == std::cv_status::timeout)
        left_ms -= kLookMs;
    }
    return over();
  };
  bool is_needless = false;
  const auto may_go_on = [&] {
    is_needless = needless && needless();
    return is_needless || shared_->running < most_;
  };
  if (!wait(may_go_on)) return stop.stopped() ? End::kStopped : End::kNoPlace;
  if (is_needless) return End::kNeedless;

  const auto call = std::make_shared<Call>();
  call->shared = shared_;
  call->function = std::move(function);
  auto start = std::make_unique<std::shared_ptr<Call>>(call);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return NoMemory();
  pthread_t thread;
  const bool started = pthread_attr_setstacksize(&attributes, stack_bytes_) == 0 &&
                       pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                       pthread_create(&thread, &attributes, &Main, start.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return NoMemory();
  start.release();
  ++shared_->running;

  if (!wait([&] { return call->done; })) return stop.stopped() ? End::kStopped : End::kTooLong;
  if (call->no_memory) return NoMemory();
  if (call->failed) return Status(StatusCode::kInternal, "compiling this rule failed in the server");
  return End::kDone;
}

}  // namespace tactus::grammar
