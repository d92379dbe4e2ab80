// Roundings of weights at load (`--quantization`): one block at a time, on the stack, in loops that compilers
// vectorise.
#pragma once

#include <cstdint>

#include "compute/kernels/packed/packed.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {

inline constexpr int kInt4Group = 64;

// v as an integer, halves to even; |v| < 2^22.
inline int32_t RoundEven(float v) {
  return static_cast<int32_t>(BitsOf(v + 0x1.8p23f) - 0x4b400000u);  // the low bits of the sum hold it
}

struct BlockScale {
  uint16_t scale = 0;  // f16
  uint8_t zero = 0;    // int4: the zero point, in quarters of a step (packed.h)
};

// max(|x[i]|, largest).
float LargestMagnitude(const float* x, int64_t n, float largest);
// codes[i] = round-to-even(x[i] * inverse) + 128; |x[i] * inverse| < 128.
void RoundToCodes(const float* x, int64_t n, float inverse, uint8_t* codes);
// 32 values to q8_0's scale and codes + 128: the values of Quantize(kQ8_0).
BlockScale QuantizeQ80(const float* x, uint8_t* codes);
// 64 values to 4-bit codes with a scale and a zero point in quarter steps (packed.h), by least squares; a scale of NaN
// where a value is not finite or too large for f16. Why this grid: relative error (root mean square) over the default
// model's Q8_0 embeddings (kurtosis 8), with bits per weight:
//   64 symmetric, scale searched:      12.8 %, 4.25      32 symmetric, largest value at -8: 11.1 %, 4.5
//   64 with minimum, full range:       11.2 %, 4.5       32 symmetric, scale searched:      10.6 %, 4.5
//   64 with minimum, least squares:    10.6 %, 4.5       32 with minimum:                    9.0 %, 5
//   64 with zero point, as here:       10.7 %, 4.375
// (On normally distributed numbers, the left column, then the right: 9.0, 9.0, 8.5, 8.6 and 8.6, 8.1, 7.6 %.) A
// minimum, a separate f16, costs a kernel a multiply-add per vector and block; the zero point is applied in the
// integers.
BlockScale QuantizeInt4(const float* x, uint8_t* codes);
// The same with errors of x[i] weighted by weights[i], each at least 0.
BlockScale QuantizeInt4(const float* x, const float* weights, uint8_t* codes);

// A value's code on such a grid; inverse = 1 / scale, or 0 where the scale is 0. NaN has the code 0.
inline int32_t Int4Code(float x, float inverse, float zero) {
  float at = (x * inverse + zero) * 0.25f;
  at = at > 0.0f ? at : 0.0f;
  at = at < 15.0f ? at : 15.0f;
  return RoundEven(at);
}

// Stores row `row` of block `block` of a panel, codes and scales; form: QuantizedFormOf(kInt4).
void StoreInt4Block(const PackedMatrix& form, int64_t row, int64_t block, BlockScale scale, const uint8_t* codes,
                    std::byte* panel);

}  // namespace tactus::compute
