// GGUF's block formats to f32, bit-exact, in portable code: the reference for tests of the vector kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/tensor/dtype.h"

namespace tactus::compute {

// out[elements] = the values at src, which need not be aligned. Precondition: elements is a multiple of the block.
void Dequantize(DType dtype, const std::byte* src, int64_t elements, float* out);

}  // namespace tactus::compute
