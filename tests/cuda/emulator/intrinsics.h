// CUDA's functions on numbers. The approximate ones are as exact here as f32 allows: kernels' tests must not ask for
// their bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "accessors.h"
#include "block.h"
#include "values.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define TACTUS_DEVICE inline

// The names of the running thread.
#define threadIdx (::tactus::compute::cuda::emulator::current->index)
#define blockIdx (::tactus::compute::cuda::emulator::BlockIndex())
#define blockDim (::tactus::compute::cuda::emulator::BlockShape())
#define gridDim (::tactus::compute::cuda::emulator::GridShape())
inline constexpr int warpSize = 32;

namespace tactus::compute::cuda::emulator {
inline dim3 BlockIndex() {
  return current->block->index();
}
inline dim3 BlockShape() {
  return dim3(static_cast<unsigned>(current->block->threads()));
}
inline dim3 GridShape() {
  return current->block->grid();
}
}  // namespace tactus::compute::cuda::emulator

#define TACTUS_EMULATED_MINMAX(T) \
  inline T min(T a, T b) {        \
    return a < b ? a : b;         \
  }                               \
  inline T max(T a, T b) {        \
    return a < b ? b : a;         \
  }
TACTUS_EMULATED_MINMAX(int)
TACTUS_EMULATED_MINMAX(unsigned)
TACTUS_EMULATED_MINMAX(long)
TACTUS_EMULATED_MINMAX(unsigned long)
TACTUS_EMULATED_MINMAX(long long)
TACTUS_EMULATED_MINMAX(unsigned long long)
#undef TACTUS_EMULATED_MINMAX
inline unsigned min(int a, unsigned b) {
  return min(static_cast<unsigned>(a), b);
}
inline unsigned min(unsigned a, int b) {
  return min(a, static_cast<unsigned>(b));
}
inline unsigned max(int a, unsigned b) {
  return max(static_cast<unsigned>(a), b);
}
inline unsigned max(unsigned a, int b) {
  return max(a, static_cast<unsigned>(b));
}
inline float min(float a, float b) {
  return fminf(a, b);
}
inline float max(float a, float b) {
  return fmaxf(a, b);
}
inline double min(double a, double b) {
  return fmin(a, b);
}
inline double max(double a, double b) {
  return fmax(a, b);
}

inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
inline float __expf(float x) {
  return expf(x);
}
inline float __exp10f(float x) {
  return powf(10.0f, x);
}
inline float __logf(float x) {
  return logf(x);
}
inline float __log2f(float x) {
  return log2f(x);
}
inline float __log10f(float x) {
  return log10f(x);
}
inline float __powf(float x, float y) {
  return powf(x, y);
}
inline float __sinf(float x) {
  return sinf(x);
}
inline float __cosf(float x) {
  return cosf(x);
}
inline void __sincosf(float x, float* s, float* c) {
  *s = sinf(x);
  *c = cosf(x);
}
inline float __tanf(float x) {
  return tanf(x);
}
// Above 2^126 the device's loses all digits.
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __saturatef(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float a) {
  return 1.0f / a;
}
inline float __fsqrt_rn(float a) {
  return sqrtf(a);
}
inline float __frsqrt_rn(float a) {
  return rsqrtf(a);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __fma_rn(double a, double b, double c) {
  return fma(a, b, c);
}

namespace tactus::compute::cuda::emulator {
// NaN becomes 0, and values beyond the range its ends.
template <class To>
To ToInteger(double v) {
  if (v != v) return 0;
  if (v <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (v >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(v);
}
}  // namespace tactus::compute::cuda::emulator

#define TACTUS_EMULATED_ROUND(suffix, function)                                           \
  inline int __float2int_##suffix(float v) {                                              \
    return ::tactus::compute::cuda::emulator::ToInteger<int>(function(v));                \
  }                                                                                       \
  inline unsigned __float2uint_##suffix(float v) {                                        \
    return ::tactus::compute::cuda::emulator::ToInteger<unsigned>(function(v));           \
  }                                                                                       \
  inline long long __float2ll_##suffix(float v) {                                         \
    return ::tactus::compute::cuda::emulator::ToInteger<long long>(function(v));          \
  }                                                                                       \
  inline unsigned long long __float2ull_##suffix(float v) {                               \
    return ::tactus::compute::cuda::emulator::ToInteger<unsigned long long>(function(v)); \
  }
TACTUS_EMULATED_ROUND(rn, nearbyintf)
TACTUS_EMULATED_ROUND(rz, truncf)
TACTUS_EMULATED_ROUND(rd, floorf)
TACTUS_EMULATED_ROUND(ru, ceilf)
#undef TACTUS_EMULATED_ROUND
inline float __int2float_rn(int v) {
  return static_cast<float>(v);
}
inline float __uint2float_rn(unsigned v) {
  return static_cast<float>(v);
}
inline float __ll2float_rn(long long v) {
  return static_cast<float>(v);
}
inline float __ull2float_rn(unsigned long long v) {
  return static_cast<float>(v);
}
inline float __double2float_rn(double v) {
  return static_cast<float>(v);
}

inline unsigned __float_as_uint(float v) {
  return std::bit_cast<unsigned>(v);
}
inline int __float_as_int(float v) {
  return std::bit_cast<int>(v);
}
inline float __uint_as_float(unsigned v) {
  return std::bit_cast<float>(v);
}
inline float __int_as_float(int v) {
  return std::bit_cast<float>(v);
}
inline long long __double_as_longlong(double v) {
  return std::bit_cast<long long>(v);
}
inline double __longlong_as_double(long long v) {
  return std::bit_cast<double>(v);
}

inline int __popc(unsigned v) {
  return std::popcount(v);
}
inline int __popcll(unsigned long long v) {
  return std::popcount(v);
}
inline int __clz(int v) {
  return std::countl_zero(static_cast<unsigned>(v));
}
inline int __clzll(long long v) {
  return std::countl_zero(static_cast<unsigned long long>(v));
}
inline int __ffs(int v) {
  return v == 0 ? 0 : std::countr_zero(static_cast<unsigned>(v)) + 1;
}
inline int __ffsll(long long v) {
  return v == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(v)) + 1;
}
inline unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= ((v >> i) & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>((static_cast<long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((((static_cast<unsigned long long>(high) << 32) | low) << (shift & 31u)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<unsigned long long>(high) << 32) | low) >> (shift & 31u));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (static_cast<unsigned long long>(y) << 32) | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = (selector >> (4 * i)) & 15u;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (pick & 7u))) & 0xffu;
    if ((pick & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0;  // its sign
    r |= byte << (8 * i);
  }
  return r;
}
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<unsigned>(static_cast<int8_t>(static_cast<unsigned>(a) >> (8 * i)) *
                                 static_cast<int8_t>(static_cast<unsigned>(b) >> (8 * i)));
  }
  return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += ((a >> (8 * i)) & 0xffu) * ((b >> (8 * i)) & 0xffu);
  return c;
}

// A read-only read of device memory by its address.
template <class T>
T __ldg(const T* p, tactus::compute::cuda::emulator::Where where = tactus::compute::cuda::emulator::Where::current()) {
  return tactus::compute::cuda::Global<const T>(p, -1, where).template Load<T>(0, where);
}
