#include "kernels/quantize_blocks.h"

#include <cmath>

#include "tensor/float16.h"

namespace tactus::kernels {
namespace {

constexpr float kRoundToEven = 0x1.8p23f;  // adding it leaves round-to-even(v) in the low bits, for |v| < 2^22

int32_t RoundEven(float v) {
  return static_cast<int32_t>(BitsOf(v + kRoundToEven)) - static_cast<int32_t>(0x4b400000);
}

// As std::round: halves away from zero.
int32_t RoundAway(float v) {
  const auto whole = static_cast<int32_t>(v);
  const float rest = v - static_cast<float>(whole);
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

}  // namespace

float LargestMagnitude(const float* x, int64_t n, float largest) {
  // Bits of non-negative floats are ordered as integers, and an integer maximum needs no rule for NaN.
  auto bits = static_cast<int32_t>(BitsOf(largest));
  for (int64_t i = 0; i < n; ++i) {
    const auto b = static_cast<int32_t>(BitsOf(x[i]) & 0x7fffffffu);
    bits = b > bits ? b : bits;
  }
  return FloatOf(static_cast<uint32_t>(bits));
}

void RoundToCodes(const float* x, int64_t n, float inverse, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(RoundEven(x[i] * inverse) + 128);
}

BlockScale QuantizeQ80(const float* x, uint8_t* codes) {
  const float d = LargestMagnitude(x, 32, 0) / 127.0f;
  const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(RoundAway(x[i] * inverse) + 128);
  return {F32ToF16(d), 0};
}

BlockScale QuantizeInt4(const float* x, uint8_t* codes) {
  float low = 0, high = 0;
  for (int i = 0; i < 64; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float extreme = high > -low ? high : low;
  const uint16_t scale = F32ToF16(extreme / -8.0f);
  const float d = F16ToF32(scale), inverse = d != 0.0f ? 1.0f / d : 0.0f;
  for (int i = 0; i < 64; ++i) {
    const int32_t code = RoundEven(x[i] * inverse) + 8;
    codes[i] = static_cast<uint8_t>(code < 0 ? 0 : code > 15 ? 15 : code);
  }
  return {scale, 0};
}

}  // namespace tactus::kernels
