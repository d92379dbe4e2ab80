// Data between the order that groups by predicted length and the composition that runs its batches.
#pragma once

#include <cstdint>

namespace tactus::core {

// Zero: not in a window yet.
struct GroupNote {
  int32_t batch;         // number in the window, from 1; the order's group
  int32_t output_limit;  // output tokens at which its batch stops the sequence; 0: no limit
  int32_t failed;        // 1: was stopped at the limit and waits for a batch of stopped sequences, which has no limit
};

}  // namespace tactus::core
