// Roundings of weights at load (`--quantization`): one block at a time, on the stack, in loops that compilers turn into vectors.
#pragma once

#include <cstdint>

namespace tactus::kernels {

struct BlockScale {
  uint16_t scale = 0, minimum = 0;  // f16
};

// max(|x[i]|, largest).
float LargestMagnitude(const float* x, int64_t n, float largest);
// codes[i] = round-to-even(x[i] * inverse) + 128; |x[i] * inverse| < 128.
void RoundToCodes(const float* x, int64_t n, float inverse, uint8_t* codes);
// 32 values to q8_0's scale and codes + 128: the values of Quantize(kQ8_0).
BlockScale QuantizeQ80(const float* x, uint8_t* codes);
// 64 values to 4-bit codes about zero 8.
BlockScale QuantizeInt4(const float* x, uint8_t* codes);

}  // namespace tactus::kernels
