// f32 to GGUF's formats, rounded to nearest as in the formats' reference (gguf.quants): for `--quantization`, dummy
// weights and tests. Only the formats below; the K formats' search for scales is not implemented.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/tensor/dtype.h"

namespace tactus::compute {

// True for kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0.
bool CanQuantize(DType dtype);

// out[RowBytes(dtype, elements)] = x[elements]. Preconditions: CanQuantize(dtype), elements a multiple of the block.
void Quantize(DType dtype, const float* x, int64_t elements, std::byte* out);

}  // namespace tactus::compute
