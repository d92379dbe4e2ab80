// Calls that recurse as deep as a client's text nests and cannot be interrupted. Each gets a thread with a large stack,
// a few run at a time, and its caller stops waiting at its timeout. An abandoned call continues, even after this object
// is destroyed, and keeps its place until it ends. A client has at most half of the places. Among waiting calls, the
// one of the client with the least recent call goes first.
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
    std::function<bool()> needless;  // checked regularly while it waits for its place; empty: always needed
    std::string client;              // the client that the place counts for; empty: no limit per client
    int64_t* waited_ms = nullptr;    // the time of this wait is added to it
  };
  // Waits for a place, and then for `call`, timeout_ms in all. kTooLong and kStopped: the call may still run, so it
  // must own all that it uses. kResourceExhausted: no thread or no memory. kInternal: it threw another exception. Any
  // thread.
  Result<End> Run(std::function<void()> call, const Terms& terms);

 private:
  struct Shared;
  struct Call;
  static void* Main(void* start);

  const size_t stack_bytes_;
  const std::shared_ptr<Shared> shared_;  // shared with the threads
};

}  // namespace tactus::language
