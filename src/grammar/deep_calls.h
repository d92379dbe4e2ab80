// Calls that recurse as deep as a client's text nests, and that nobody can interrupt: each runs on a thread of its own
// with a large stack, a few at a time, and its caller stops waiting when time is up. One that is left behind goes on
// alone, even after this is gone, and keeps its place until it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::grammar {

class DeepCalls {
 public:
  DeepCalls(int most_at_once, size_t stack_bytes);
  DeepCalls(const DeepCalls&) = delete;
  DeepCalls& operator=(const DeepCalls&) = delete;

  enum class End : uint8_t { kDone, kNeedless, kNoPlace, kTooLong, kStopped };
  // Waits for a place, and then for `call`, `timeout_ms` in all. While it waits for the place it asks now and then
  // whether the call has become needless; empty: it does not. kTooLong and kStopped: the call may still run, so it owns
  // all that it touches. kResourceExhausted: no thread or no memory. Any thread.
  Result<End> Run(std::function<void()> call, int64_t timeout_ms, StopToken stop,
                  const std::function<bool()>& needless = {});

 private:
  struct Shared;
  struct Call;
  static void* Main(void* start);

  const int most_;
  const size_t stack_bytes_;
  const std::shared_ptr<Shared> shared_;  // with the threads
};

}  // namespace tactus::grammar
