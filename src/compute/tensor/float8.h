// Floats of 8 and 4 bits to f32, exactly.
#pragma once

#include <cstdint>

#include "compute/tensor/float16.h"

namespace tactus::compute {

// E4M3 with one NaN for each sign and no infinity (OCP 8-bit floating point, "E4M3FN").
[[maybe_unused]] static inline float E4M3ToF32(uint8_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x80u) << 24;
  const uint32_t exponent = (x >> 3) & 0xfu, fraction = x & 7u;
  if ((x & 0x7fu) == 0x7fu) return FloatOf(sign | 0x7fc00000u);
  if (exponent != 0) return FloatOf(sign | ((exponent + 120) << 23) | (fraction << 20));
  return FloatOf(sign | BitsOf(static_cast<float>(fraction) * 0x1p-9f));
}

// E2M1, of the lowest 4 bits.
[[maybe_unused]] static inline float E2M1ToF32(uint32_t x) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kValues[x & 7u];
  return (x & 8u) != 0 ? -magnitude : magnitude;
}

}  // namespace tactus::compute
