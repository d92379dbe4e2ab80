#include "base/system_random.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace tactus {

Result<Hash128> SystemRandom() {
  Hash128 bits;
  ssize_t got = 0;
  do {
    got = getrandom(&bits, sizeof bits, 0);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof bits)) return bits;  // never short below 256 bytes
  return Status(StatusCode::kUnavailable,
                fmt::format("the system returns no random numbers (getrandom: {}); secrets cannot be drawn",
                            std::strerror(errno)));
}

}  // namespace tactus
