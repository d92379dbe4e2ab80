// bf16 and IEEE binary16 <-> f32, nearest even, on the bits alone, so that every machine agrees. NaN stays NaN (quiet).
//
// The functions have internal linkage on purpose: kernel files compiled for AVX-512 include this header too. A shared
// inline copy that the linker took from such a file would be an illegal instruction on an older machine.
#pragma once

#include <cstdint>
#include <cstring>

namespace tactus::compute {

[[maybe_unused]] static inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

[[maybe_unused]] static inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

[[maybe_unused]] static inline float BF16ToF32(uint16_t h) {
  return FloatOf(static_cast<uint32_t>(h) << 16);
}

[[maybe_unused]] static inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

[[maybe_unused]] static inline float F16ToF32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t fraction = h & 0x3ffu;
  if (exponent == 0x1f) return FloatOf(sign | 0x7f800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0));
  if (exponent != 0) return FloatOf(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Zero or subnormal: fraction * 2^-24 is exact in f32.
  const float magnitude = static_cast<float>(fraction) * 0x1.0p-24f;
  return FloatOf(sign | BitsOf(magnitude));
}

[[maybe_unused]] static inline uint16_t F32ToF16(float value) {
  const uint32_t bits = BitsOf(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u)
    return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more, or is infinite
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 leaves the result's fraction, rounded to nearest even, in the low bits.
    const float shifted = FloatOf(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOf(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace tactus::compute
