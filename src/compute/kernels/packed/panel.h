// One panel of packed weights times some packed tokens (compute/kernels/packed/packed.h): what kernel.h, which hands
// out the work and finishes it, asks of the code that multiplies. Stateless; any thread.
#pragma once

#include <cstdint>

#include "compute/kernels/packed/packed.h"

namespace tactus::compute {

// Panel `panel` of `w` times the rows [first, first + rows) of `x`.
struct PanelSums {
  const PackedMatrix* w = nullptr;
  const PackedTokens* x = nullptr;
  int64_t panel = 0;
  int64_t first = 0, rows = 0;
  // out: [rows][64], packed.h's y; of integers with block == 0 before the row's scale.
  float* sums = nullptr;  // 64-byte aligned
};

using SumPanelFn = void (*)(const PanelSums&);
using PickSumFn = SumPanelFn (*)(const PackedTokens&, const PackedMatrix&);  // by their forms

}  // namespace tactus::compute
