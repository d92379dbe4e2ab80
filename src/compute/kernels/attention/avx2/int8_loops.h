// Loops of attention's products over 16-bit integers, 8 lanes at a time (int8_products.h).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/kv.h"

namespace tactus::compute {
namespace {

inline constexpr float kMost16 = 32767.0f;

// MinOf, MaxOf and CeilDiv (rows/row_kernel.h) for positions, which have 32 bits.
inline int32_t Least(int32_t a, int32_t b) {
  return a < b ? a : b;
}
inline int32_t Most(int32_t a, int32_t b) {
  return a > b ? a : b;
}
inline int32_t Ceil(int32_t a, int32_t b) {
  return (a + b - 1) / b;
}
// What makes numbers up to `largest` codes of 16 bits; 0 for zeros and NaN.
inline float To16(float largest) {
  return largest >= 1e-30f ? kMost16 / largest : 0.0f;
}

// Four codes per 32-bit lane as two pairs of 16 bits: elements 0 and 2, 1 and 3.
struct WideCodes {
  __m256i even, odd;
  explicit WideCodes(const std::byte* from) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    even = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8);
    odd = _mm256_srai_epi16(codes, 8);
  }
};
// Two pairs, as WideCodes has them, per group of four elements of a row.
inline __m256i SpreadPair(const void* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return _mm256_set1_epi32(both);
}

// Adds the products of one group: kVecs vectors of codes with two pairs of each row. A row's pairs serve all vectors,
// so the codes, opened once, stay in registers.
template <class Lanes, int kRows, int kVecs, class PairsOf>
inline __attribute__((always_inline)) void AddGroup(const std::byte* const* codes, int64_t offset, PairsOf pairs_of,
                                                    __m256i (&sum)[kRows][kVecs]) {
  __m256i even[kVecs], odd[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    const WideCodes wide(codes[v] + offset);
    even[v] = wide.even;
    odd[v] = wide.odd;
  }
  for (int r = 0; r < kRows; ++r) {
    const int16_t* pairs = pairs_of(r);
    const __m256i first = SpreadPair(pairs), second = SpreadPair(pairs + 2);
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Lanes::MulAddPairs(sum[r][v], even[v], first);
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Lanes::MulAddPairs(sum[r][v], odd[v], second);
  }
}

// K of kVecs vectors of 8 positions; group g of 4 dimensions is at from[v] + g * stride.
struct KeyVectors {
  const std::byte* from[2];
  const float* scales[2];
  int64_t stride;
};

template <class Lanes, int kRows, int kVecs>
void ScoreInts(const AttentionRows& rows, int32_t first, int64_t groups, const KeyVectors& keys, LinesAhead* ahead,
               float* scores) {
  __m256i sum[kRows][kVecs];
  const int16_t* q[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = reinterpret_cast<const int16_t*>(rows.q[first + r]);
    for (int v = 0; v < kVecs; ++v) sum[r][v] = _mm256_setzero_si256();
  }
  for (int64_t g = 0; g < groups; ++g) {
    if (g % 4 == 0) ahead->Step();
    AddGroup<Lanes, kRows, kVecs>(keys.from, g * keys.stride, [&](int r) { return q[r] + 4 * g; }, sum);
  }
  for (int v = 0; v < kVecs; ++v) {
    const __m256 scale = _mm256_loadu_ps(keys.scales[v]);
    for (int r = 0; r < kRows; ++r) {
      const __m256 score = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][v]), _mm256_set1_ps(rows.q_scale[first + r]));
      _mm256_storeu_ps(scores + r * kPartition + v * 8, _mm256_mul_ps(score, scale));
    }
  }
}

// Adds the values of position groups [first, last) to sums of kVecs vectors of 8 dimensions. weights: int16, rows
// 2 * kPartition apart.
template <class Lanes, int kRows, int kVecs>
void WeighInts(const std::byte* const* values, int32_t first, int32_t last, int64_t offset, const int16_t* weights,
               bool fresh, LinesAhead* ahead, int64_t padded, int32_t* sums) {
  __m256i sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = fresh ? _mm256_setzero_si256()
                        : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + r * padded + v * 8));
    }
  }
  for (int32_t g = first; g < last; ++g) {
    if (g % 4 == 0) ahead->Step();
    const std::byte* from[2] = {values[g], values[g] + 32};
    AddGroup<Lanes, kRows, kVecs>(from, offset, [&](int r) { return weights + r * 2 * kPartition + g * 4; }, sum);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * padded + v * 8), sum[r][v]);
  }
}

// 16 values of one row in [-kMost16, kMost16] to int16, of every four in the order 0, 2, 1, 3.
inline void Store16(__m256 a, __m256 b, int16_t* to) {
  const __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xd8);
  const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7,
                                         8, 9, 12, 13, 10, 11, 14, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(ordered, pairs));
}

// The largest magnitude, or NaN if a value is NaN or infinite. values: `n` floats, a multiple of 8.
inline float Largest(const float* values, int64_t n) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 most = _mm256_setzero_ps(), zero = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    most = _mm256_max_ps(_mm256_andnot_ps(sign, x), most);
    zero = _mm256_fmadd_ps(x, _mm256_setzero_ps(), zero);  // 0 * x: NaN unless finite
  }
  return Simd::MaxLane(most) + Simd::Sum(zero);
}

}  // namespace
}  // namespace tactus::compute
