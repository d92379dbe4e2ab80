#include "grammar/deep_calls.h"

#include <pthread.h>

#include <chrono>
#include <memory>
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

struct DeepCalls::Call {
  std::function<void()> function;
  bool done = false, no_memory = false;  // under the owner's mutex
};

void* DeepCalls::Main(void* start) {
  const auto begin = std::unique_ptr<std::pair<DeepCalls*, std::shared_ptr<Call>>>(
      static_cast<std::pair<DeepCalls*, std::shared_ptr<Call>>*>(start));
  auto& [owner, call] = *begin;
  SetThreadRole(ThreadRole::kService, "tactus-grammar");
  bool no_memory = false;
  try {
    call->function();
  } catch (const std::bad_alloc&) {
    no_memory = true;
  }
  call->function = nullptr;  // what it holds goes before its owner may
  const std::lock_guard lock(owner->mutex_);
  call->done = true;
  call->no_memory = no_memory;
  --owner->running_;
  owner->changed_.notify_all();
  return nullptr;
}

DeepCalls::~DeepCalls() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ == 0; });
}

Result<DeepCalls::End> DeepCalls::Run(std::function<void()> function, int64_t timeout_ms, StopToken stop) {
  std::unique_lock lock(mutex_);
  // Counts looks and no clock: what is waited for is work of this process.
  int64_t left_ms = timeout_ms;
  const auto wait = [&](auto&& over) {
    while (!over() && left_ms > 0 && !stop.stopped()) {
      if (changed_.wait_for(lock, std::chrono::milliseconds(kLookMs)) == std::cv_status::timeout) left_ms -= kLookMs;
    }
    return over();
  };
  if (!wait([this] { return running_ < most_; })) return stop.stopped() ? End::kStopped : End::kNoPlace;

  const auto call = std::make_shared<Call>();
  call->function = std::move(function);
  auto start = std::make_unique<std::pair<DeepCalls*, std::shared_ptr<Call>>>(this, call);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return NoMemory();
  pthread_t thread;
  const bool started = pthread_attr_setstacksize(&attributes, stack_bytes_) == 0 &&
                       pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                       pthread_create(&thread, &attributes, &Main, start.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return NoMemory();
  start.release();
  ++running_;

  if (!wait([&] { return call->done; })) return stop.stopped() ? End::kStopped : End::kTooLong;
  if (call->no_memory) return NoMemory();
  return End::kDone;
}

}  // namespace tactus::grammar
