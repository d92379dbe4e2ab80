#include "base/body_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace tactus {

BodyLimits BodyLimits::Within(int64_t wanted_bytes, int64_t room_bytes) const {
  if (room_bytes <= 0 || room_bytes >= wanted_bytes) return *this;
  const double share = static_cast<double>(room_bytes) / static_cast<double>(wanted_bytes);
  const auto part = [share](int64_t bytes) { return static_cast<int64_t>(static_cast<double>(bytes) * share); };
  return {part(max_body_bytes), part(max_body_total_bytes), part(kept_bytes)};
}

int64_t RequestRoom(int64_t available_bytes) {
  constexpr int64_t kLeast = int64_t{4} << 20;
  return available_bytes < 0 ? -1 : std::max(kLeast, available_bytes / 2);
}

std::string ShortMemoryText(const BodyLimits& asked, const BodyLimits& allowed) {
  return fmt::format(
      "warning: memory is short: a request's body may have {} bytes instead of {}, all together {} instead of {} "
      "(--max-body, --max-body-total)",
      allowed.max_body_bytes, asked.max_body_bytes, allowed.max_body_total_bytes, asked.max_body_total_bytes);
}

}  // namespace tactus
