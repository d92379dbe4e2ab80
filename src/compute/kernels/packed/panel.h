// One panel of packed weights times some packed tokens (compute/kernels/packed/packed.h): the interface between
// kernel.h, which distributes and finishes the work, and the multiplying code. Stateless; any thread.
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
  // Receives [rows][64], packed.h's y; for integers with block == 0 without the row's scale.
  float* sums = nullptr;  // 64-byte aligned
};

using SumPanelFn = void (*)(const PanelSums&);
using PickSumFn = SumPanelFn (*)(const PackedTokens&, const PackedMatrix&);  // selected by their forms

}  // namespace tactus::compute
