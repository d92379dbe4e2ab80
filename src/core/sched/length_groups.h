// Data between the order that groups by predicted length and the composition that runs its batches.
#pragma once

#include <cstdint>

namespace tactus::core {

// Zero: not in a window yet.
struct GroupNote {
  int32_t batch;         // number in the window, from 1; the order's group
  int32_t output_limit;  // output tokens at which the batch stops the sequence, to run again with those that failed; 0:
                         // none
  int32_t failed;        // 1: was stopped there, and is not in a batch again yet
};

}  // namespace tactus::core
