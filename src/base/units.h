// Integer units and ids. Time is integer nanoseconds everywhere (determinism); conversions happen at the edges.
#pragma once

#include <cstdint>
#include <limits>

#include "tactus/request.h"

namespace tactus {

using TimeNs = int64_t;  // since the clock's epoch
using DurationNs = int64_t;
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
inline constexpr DurationNs kMicrosecond = 1'000;
inline constexpr DurationNs kMillisecond = 1'000'000;
inline constexpr DurationNs kSecond = 1'000'000'000;

using StepId = int64_t;    // 0, 1, 2, ... one per submitted plan
using SlotId = int32_t;    // index of a live sequence in all tables of sequences; reused after the sequence has ended
using ClientId = int32_t;  // a client that has or had live sequences (core/seq/client_table.h)
using BlockId = int32_t;   // index of a KV block in the pool
inline constexpr SlotId kNoSlot = -1;
inline constexpr BlockId kNoBlock = -1;

}  // namespace tactus
