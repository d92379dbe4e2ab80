// Values of 16 and 8 bits and their conversions as an H200 has them (tests/cuda/conformance/README.md), and CUDA's
// vector types.
#pragma once

#include <math.h>  // CUDA has the global names

#include <bit>
#include <cstdint>
#include <type_traits>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define TACTUS_EMULATED_VECTORS(T, name, bytes)             \
  struct alignas(bytes) name##2 {                           \
    T x, y;                                                 \
  };                                                        \
  struct alignas(bytes * 2 > 16 ? 16 : bytes * 2) name##4 { \
    T x, y, z, w;                                           \
  };                                                        \
  struct name##3 {                                          \
    T x, y, z;                                              \
  };                                                        \
  struct name##1 {                                          \
    T x;                                                    \
  };                                                        \
  inline name##1 make_##name##1(T x) {                      \
    return {x};                                             \
  }                                                         \
  inline name##2 make_##name##2(T x, T y) {                 \
    return {x, y};                                          \
  }                                                         \
  inline name##3 make_##name##3(T x, T y, T z) {            \
    return {x, y, z};                                       \
  }                                                         \
  inline name##4 make_##name##4(T x, T y, T z, T w) {       \
    return {x, y, z, w};                                    \
  }
TACTUS_EMULATED_VECTORS(signed char, char, 2)
TACTUS_EMULATED_VECTORS(unsigned char, uchar, 2)
TACTUS_EMULATED_VECTORS(short, short, 4)
TACTUS_EMULATED_VECTORS(unsigned short, ushort, 4)
TACTUS_EMULATED_VECTORS(int, int, 8)
TACTUS_EMULATED_VECTORS(unsigned, uint, 8)
TACTUS_EMULATED_VECTORS(float, float, 8)
TACTUS_EMULATED_VECTORS(long long, longlong, 16)
TACTUS_EMULATED_VECTORS(unsigned long long, ulonglong, 16)
TACTUS_EMULATED_VECTORS(double, double, 16)
#undef TACTUS_EMULATED_VECTORS

namespace tactus::compute::cuda {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct e4m3 {
  uint8_t bits;
};

namespace emulator {

// `mantissa` bits are kept, to nearest with ties to even; magnitudes from 2^(1 - bias) are normal. A value beyond the
// range has a field beyond the format's.
inline uint32_t RoundMagnitude(uint32_t f32, int mantissa, int bias) {
  const uint32_t magnitude = f32 & 0x7fffffffu;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  int drop = 23 - mantissa;
  uint32_t digits = magnitude;
  if (exponent < 1 - bias) {  // subnormal in the narrow format
    drop += 1 - bias - exponent;
    if (drop > 25) return 0;
    digits = (magnitude & 0x7fffffu) | 0x800000u;
  } else {
    digits -= static_cast<uint32_t>(127 - bias) << 23;
  }
  const uint32_t kept = digits >> drop, rest = digits & ((1u << drop) - 1), half = 1u << (drop - 1);
  return kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
}

inline uint16_t Bf16Of(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (v != v) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline uint16_t F16Of(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (v != v) return 0x7fff;
  const uint32_t magnitude = (bits & 0x7fffffffu) >= 0x47800000u ? 0x7c00u : RoundMagnitude(bits, 10, 15);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | magnitude);
}
inline uint8_t E4m3Of(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (v != v) return 0x7f;
  uint32_t magnitude = (bits & 0x7fffffffu) >= 0x43e80000u ? 0x7eu : RoundMagnitude(bits, 3, 7);  // 464 and more: 448
  if (magnitude > 0x7e) magnitude = 0x7e;
  return static_cast<uint8_t>(((bits >> 24) & 0x80u) | magnitude);
}

inline float OfF16(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, field = (h >> 10) & 31u, mantissa = h & 0x3ffu;
  if (field == 31) return std::bit_cast<float>(mantissa != 0 ? 0x7fffffffu : sign | 0x7f800000u);
  if (field != 0) return std::bit_cast<float>(sign | ((field + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}
inline float OfE4m3(uint8_t v) {
  const uint32_t field = (v >> 3) & 15u, mantissa = v & 7u;
  if ((v & 0x7fu) == 0x7fu) return std::bit_cast<float>(0x7fffffffu);
  const float magnitude = field != 0 ? std::bit_cast<float>(((field + 120) << 23) | (mantissa << 20))
                                     : static_cast<float>(mantissa) * 0x1p-9f;
  return (v & 0x80u) != 0 ? -magnitude : magnitude;
}

}  // namespace emulator

inline float ToFloat(float v) {
  return v;
}
inline float ToFloat(bf16 v) {
  return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16);
}
inline float ToFloat(f16 v) {
  return emulator::OfF16(v.bits);
}
inline float ToFloat(int8_t v) {
  return static_cast<float>(v);
}
inline float ToFloat(e4m3 v) {
  return emulator::OfE4m3(v.bits);
}

template <class T>
T FromFloat(float v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16{emulator::Bf16Of(v)};
  } else if constexpr (std::is_same_v<T, f16>) {
    return f16{emulator::F16Of(v)};
  } else if constexpr (std::is_same_v<T, e4m3>) {
    return e4m3{emulator::E4m3Of(v)};
  } else if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<int8_t>(v != v ? 0.0f : fmaxf(-128.0f, fminf(127.0f, nearbyintf(v))));
  } else {
    static_assert(std::is_same_v<T, float>);
    return v;
  }
}

template <class T>
uint32_t PackPair(float low, float high) {
  return FromFloat<T>(low).bits | static_cast<uint32_t>(FromFloat<T>(high).bits) << 16;
}
template <class T>
float2 UnpackPair(uint32_t pair) {
  return {ToFloat(T{static_cast<uint16_t>(pair)}), ToFloat(T{static_cast<uint16_t>(pair >> 16)})};
}

namespace emulator {

// The half of a pair as a value.
template <class T>
float HalfOf(uint32_t pair, int half) {
  return ToFloat(T{static_cast<uint16_t>(pair >> (16 * half))});
}
// `exact` + `rest` in f32, rounded so that a further rounding to 16 bits is as if it were the only one: an inexact
// value has an odd last digit (Boldo and Melquiond, 2005).
inline float RoundToOdd(double exact, double rest) {
  auto f = static_cast<float>(exact);
  const double error = exact - static_cast<double>(f) + rest;
  if (error == 0.0 || !(f - f == 0.0f) || (std::bit_cast<uint32_t>(f) & 1u) != 0) return f;
  return nextafterf(f, error > 0.0 ? INFINITY : -INFINITY);
}
inline float FmaToOdd(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);  // exact for factors of 16 bits
  const double sum = product + static_cast<double>(c), part = sum - product;
  const double rest = (product - (sum - part)) + (static_cast<double>(c) - part);  // Knuth's TwoSum
  return RoundToOdd(sum, rest == rest ? rest : 0.0);
}

}  // namespace emulator

template <class T>
uint32_t MulPair(uint32_t a, uint32_t b) {
  const auto half = [&](int i) { return emulator::HalfOf<T>(a, i) * emulator::HalfOf<T>(b, i); };
  return PackPair<T>(half(0), half(1));  // the products are exact in f32
}
template <class T>
uint32_t FmaPair(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [&](int i) {
    return emulator::FmaToOdd(emulator::HalfOf<T>(a, i), emulator::HalfOf<T>(b, i), emulator::HalfOf<T>(c, i));
  };
  return PackPair<T>(half(0), half(1));
}
// The card's approximations flush subnormal inputs and results to 0.
inline float Exp2(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline float Reciprocal(float x) {
  const float y = 1.0f / (fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x);
  return fabsf(y) < 0x1p-126f ? copysignf(0.0f, y) : y;
}

// CUDA contracts a * b + c; the emulated build does not (-ffp-contract=off), so these are the plain operations.
inline float Mul(float a, float b) {
  return a * b;
}
inline float Add(float a, float b) {
  return a + b;
}
inline float Fma(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline float Div(float a, float b) {
  return a / b;
}

}  // namespace tactus::compute::cuda
