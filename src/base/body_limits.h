// Limits of request bodies, reduced if memory is scarce.
#pragma once

#include <cstdint>
#include <string>

namespace tactus {

struct BodyLimits {
  // Bodies of running requests that may move to another replica, in total and each. A longer one is not kept, so its
  // request cannot move.
  static constexpr int64_t kMostKeptBytes = int64_t{64} << 20, kLongestKeptBody = int64_t{1} << 20;

  int64_t max_body_bytes = 0;
  int64_t max_body_total_bytes = 0;
  int64_t kept_bytes = 0;  // kept bodies of running requests that may move

  // The limits scaled down so that requests that need up to `wanted_bytes` fit into `room_bytes` (0 or less: unknown,
  // no change).
  BodyLimits Within(int64_t wanted_bytes, int64_t room_bytes) const;
};

// The part of the available memory (AvailableMemoryBytes(), or -1) that a process without a model uses for requests:
// half, since threads and libraries need the rest. -1: unknown.
int64_t RequestRoom(int64_t available_bytes);

// A log line with the allowed limits instead of the requested ones.
std::string ShortMemoryText(const BodyLimits& asked, const BodyLimits& allowed);

// The options of a process without a model, with limits of bodies that fit the available memory
// (AvailableMemoryBytes()). Logs reduced limits.
template <class Options, class Log>
Options FittedToMemory(const Options& options, int64_t available_bytes, const Log& log) {
  Options fitted = options;
  const BodyLimits asked = options.Bodies(),
                   allowed = asked.Within(options.RequestBytes(), RequestRoom(available_bytes));
  if (allowed.max_body_bytes < asked.max_body_bytes) {
    log(ShortMemoryText(asked, allowed) + "; allow this process more memory");
    fitted.max_body.bytes = allowed.max_body_bytes;
    fitted.max_body_total.bytes = allowed.max_body_total_bytes;
  }
  return fitted;
}

}  // namespace tactus
