// Vectors of 4 f32 lanes in compiler vector types: SSE2, NEON or plain code, depending on the target. This is the
// interface of every file here for rows/, packed/ and attention/; all of it has internal linkage (see kernel_set.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

struct Simd {
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  // Tile sizes that keep accumulators in 16 registers.
  static constexpr int kLinearTokens = 3, kLinearRows = 4;
  static constexpr int kAttentionRows = 4, kAttentionVecs = 2;

  static F Zero() { return F{0, 0, 0, 0}; }
  static F Set1(float v) { return F{v, v, v, v}; }
  static F Load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void Store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
  static F LoadBF16(const void* p) {
    uint16_t h[4];
    std::memcpy(h, p, sizeof h);
    return F{BF16ToF32(h[0]), BF16ToF32(h[1]), BF16ToF32(h[2]), BF16ToF32(h[3])};
  }
  static F LoadF16(const void* p) {
    uint16_t h[4];
    std::memcpy(h, p, sizeof h);
    return F{F16ToF32(h[0]), F16ToF32(h[1]), F16ToF32(h[2]), F16ToF32(h[3])};
  }
  // One binary16 in every lane.
  static F SpreadF16(const void* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof h);
    return Set1(F16ToF32(h));
  }
  static F LoadInt8(const int8_t* p) {
    return F{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])};
  }
  // Four bytes' low or high nibbles as floats.
  static F LoadLowNibbles(const uint8_t* p) {
    return F{static_cast<float>(p[0] & 0xf), static_cast<float>(p[1] & 0xf), static_cast<float>(p[2] & 0xf),
             static_cast<float>(p[3] & 0xf)};
  }
  static F LoadHighNibbles(const uint8_t* p) {
    return F{static_cast<float>(p[0] >> 4), static_cast<float>(p[1] >> 4), static_cast<float>(p[2] >> 4),
             static_cast<float>(p[3] >> 4)};
  }
  static void StoreBF16(void* p, F v) {
    const uint16_t h[4] = {F32ToBF16(v[0]), F32ToBF16(v[1]), F32ToBF16(v[2]), F32ToBF16(v[3])};
    std::memcpy(p, h, sizeof h);
  }
  // The 32 nibbles of 16 bytes (low ones first, then high ones) as value(nibble as a float), a vector at a time:
  // use(index of the first lane, vector), indices ascending.
  template <class Value, class Use>
  static void Nibbles(const uint8_t* p, Value value, Use use) {
    for (int j = 0; j < 16; j += kWidth) use(j, value(LoadLowNibbles(p + j)));
    for (int j = 0; j < 16; j += kWidth) use(16 + j, value(LoadHighNibbles(p + j)));
  }
  // A hint that the line at p will be read soon.
  static void Prefetch(const void* p) { __builtin_prefetch(p); }
  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  static F MulAdd(F a, F b, F c) { return a * b + c; }
  // Both return b where the lanes do not compare, so that NaN in b stays.
  static F Max(F a, F b) { return a > b ? a : b; }
  static F Min(F a, F b) { return a < b ? a : b; }
  // x * 2^n for integral n in [-126, 127]
  static F ScaleByPowerOf2(F x, F n) {
    const I e = (__builtin_convertvector(n, I) + 127) << 23;
    F scale;
    std::memcpy(&scale, &e, sizeof scale);
    return x * scale;
  }
  static F RoundNearest(F x) {  // |x| < 2^22
    const F magic = Set1(12582912.0f);
    return (x + magic) - magic;
  }
  // v in the lanes [0, n), `other` elsewhere
  static F KeepFirst(F v, int n, F other) {
    const I lane = {0, 1, 2, 3};
    return lane < n ? v : other;
  }
  static F KeepFrom(F v, int n, F other) {  // v in the lanes [n, 4)
    const I lane = {0, 1, 2, 3};
    return lane >= n ? v : other;
  }
  // v where x >= limit, 0 elsewhere (NaN in x keeps v)
  static F ZeroBelow(F x, float limit, F v) { return x < Set1(limit) ? Zero() : v; }
  static float Sum(F v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  // Sum of four vectors, each bit for bit as Sum
  static void Sum4(F a, F b, F c, F d, float* out) {
    out[0] = Sum(a);
    out[1] = Sum(b);
    out[2] = Sum(c);
    out[3] = Sum(d);
  }
  static float MaxLane(F v) {
    const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
  }
  // Columns of the 4x4 tile at `from` (rows `stride` apart) become rows at `to`.
  static void Transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    for (int r = 0; r < kWidth; ++r) {
      for (int c = 0; c < kWidth; ++c) to[c * to_stride + r] = from[r * stride + c];
    }
  }
  // Whether to call TransposePairs below: the same for bf16 rows, two columns per lane at a time.
  static constexpr bool kTransposesPairs = false;
  static void TransposePairs(const uint16_t* const*, int64_t, float*, int64_t) {}
};

}  // namespace
}  // namespace tactus::compute
