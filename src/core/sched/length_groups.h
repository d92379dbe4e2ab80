// What the order that groups by predicted length and the composition that runs its batches say to each other.
#pragma once

#include <cstdint>

namespace tactus::core {

// Zero: in no window yet.
struct GroupNote {
  int32_t batch;         // of the window, from 1; the order's group
  int32_t output_limit;  // output tokens after which the batch leaves it to those that failed; 0: none
  int32_t failed;        // 1: was stopped there, and has not been put into a batch again
};

}  // namespace tactus::core
