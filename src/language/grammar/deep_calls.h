// Calls that recurse as deep as a client's text nests, and that cannot be interrupted: each gets a thread with
// a large stack, a few at a time, and its caller stops waiting when time is up. One that is left behind goes on
// alone, even after this is gone, and keeps its place until it ends. The places are shared: a client has half of them
// at most, and of those that wait the client goes first whose last call is longest ago.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

class DeepCalls {
 public:
  DeepCalls(int most_at_once, size_t stack_bytes);
  DeepCalls(const DeepCalls&) = delete;
  DeepCalls& operator=(const DeepCalls&) = delete;

  enum class End : uint8_t { kDone, kNeedless, kNoPlace, kTooLong, kStopped };
  struct Terms {
    int64_t timeout_ms = 0;
    StopToken stop;
    std::function<bool()> needless;  // asked now and then while it waits for its place; empty: it never is
    std::string client;              // whose place it takes; empty: there are no others
    int64_t* waited_ms = nullptr;    // gets the time that it took, added to what is there
  };
  // Waits for a place, and then for `call`, timeout_ms in all. kTooLong and kStopped: the call may still run, so it
  // owns all that it touches. kResourceExhausted: no thread or no memory. kInternal: it has thrown something else. Any
  // thread.
  Result<End> Run(std::function<void()> call, const Terms& terms);

 private:
  struct Shared;
  struct Call;
  static void* Main(void* start);

  const size_t stack_bytes_;
  const std::shared_ptr<Shared> shared_;  // with the threads
};

}  // namespace tactus::language
