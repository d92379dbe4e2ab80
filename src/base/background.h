// Background requests have the lowest priority (Request::priority). Orders that otherwise ignore priorities start them
// only if no other request waits.
#pragma once

#include <cstdint>
#include <limits>

namespace tactus {

inline constexpr int32_t kBackgroundPriority = std::numeric_limits<int32_t>::max();

}  // namespace tactus
