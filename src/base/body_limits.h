// How large request bodies may be where memory is short.
#pragma once

#include <cstdint>
#include <string>

namespace tactus {

struct BodyLimits {
  int64_t max_body_bytes = 0;
  int64_t max_body_total_bytes = 0;
  int64_t kept_bytes = 0;  // of running requests that may move

  // The same limits in proportion, where requests would take `wanted_bytes` and there is room for `room_bytes` (0 or
  // less: not known, no change).
  BodyLimits Within(int64_t wanted_bytes, int64_t room_bytes) const;
};

// The part of the memory that is left (AvailableMemoryBytes(), or -1) that a process without a model gives to requests:
// half, since threads and libraries take the other. -1 where nothing is known.
int64_t RequestRoom(int64_t available_bytes);

// For a log: what is allowed instead of what was asked for.
std::string ShortMemoryText(const BodyLimits& asked, const BodyLimits& allowed);

// The options of a process without a model, whose bodies fit the memory that is left (AvailableMemoryBytes()). Says in
// `log` what it cut.
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
