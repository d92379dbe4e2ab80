// f32 to GGUF's formats, round to nearest as the format's reference does (gguf.quants): `--quantization`, dummy
// weights, tests. Only the formats below; the K formats' search for scales is not here.
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
