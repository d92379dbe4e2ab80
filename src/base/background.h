// Which requests are background work: those of the lowest priority (Request::priority). Orders that otherwise look at
// no priority let them begin when no other request waits.
#pragma once

#include <cstdint>
#include <limits>

namespace tactus {

inline constexpr int32_t kBackgroundPriority = std::numeric_limits<int32_t>::max();

}  // namespace tactus
