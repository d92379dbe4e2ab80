// The arithmetic of attention with vpdpbusd: scores, softmax weights and weighted values of a few rows at a time,
// straight from the codes of K and V. q and the weights are 16-bit integers, split into two of 8 bits. Sums are exact;
// int8.cc states their rounding.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/rows.h"

namespace tactus::compute {
namespace {

constexpr int32_t kQuads = kPartition / 4;  // groups of positions per partition

// (high << 8) + low + offset, in f32.
inline __m512i Join(__m512i high, __m512i low, __m512i offset) {
  return _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low), offset);
}

// A row of q: its high bytes, then its low bytes, half a row later. 128 is added to codes of K to make them unsigned;
// call.q_offset compensates. kFetch: prefetches call.ahead.
template <int kRows, int kVecs, bool kFetch>
void ScoreRows(const ScoreCall& call) {
  __m512i high[kRows][kVecs], low[kRows][kVecs];
  const uint32_t *q = call.q, *at[kVecs];
  const std::byte* ahead[kVecs];
  const int64_t q_stride = call.q_stride, stride = call.stride, half = q_stride / 2;
  const __m512i sign = _mm512_set1_epi8(-128);
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    at[v] = call.keys[v];
    if (kFetch) ahead[v] = call.ahead[v];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) high[r][v] = low[r][v] = _mm512_setzero_si512();
  }
  for (int32_t d = 0; d < call.words; ++d) {
    __m512i k[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      k[v] = _mm512_xor_si512(_mm512_loadu_si512(at[v] + d * stride), sign);
      if (kFetch) __builtin_prefetch(ahead[v] + d * 64);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(q[r * q_stride + d]));
      const __m512i y = _mm512_set1_epi32(static_cast<int>(q[r * q_stride + half + d]));
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) high[r][v] = _mm512_dpbusd_epi32(high[r][v], k[v], x);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) low[r][v] = _mm512_dpbusd_epi32(low[r][v], k[v], y);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const __m512 scale = _mm512_loadu_ps(call.scales[v]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i sum = Join(high[r][v], low[r][v], _mm512_set1_epi32(call.q_offset[r]));
      _mm512_storeu_ps(call.scores + r * kPartition + 16 * v, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale));
    }
  }
}

// The largest of non-negative numbers in the columns that a row attends to; NaN if one is.
inline float LargestScale(const float* scales, ColumnRange row) {
  __m512i top = _mm512_setzero_si512();
  for (int32_t c = row.from / 16 * 16; c < row.to; c += 16) {
    const __m512i bits = _mm512_maskz_loadu_epi32(Within(c, row.from, row.to), scales + c);
    top = _mm512_max_epi32(top, bits);  // bits of numbers >= 0 compare as the numbers do, with NaN on top
  }
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(top))));
}

// Power of two that makes weights times scales of V, at most `largest`, 15-bit numbers. Its bounds keep sums of weights
// finite and weights normal.
inline int32_t WeightShift(float largest) {
  uint32_t bits;
  std::memcpy(&bits, &largest, sizeof bits);
  const int32_t shift = 14 + 127 - static_cast<int32_t>(bits >> 23);
  return shift < 100 ? shift : 100;
}

inline float PowerOfTwo(int32_t n) {
  const auto bits = static_cast<uint32_t>(n + 127) << 23;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// One row's scores to weights 2^(shift + log2_scale * (score - maximum)) * value_scales, rounded to integers; columns
// of the group that the row does not attend to become 0. A row of weights: high bytes, then low bytes. Returns, in
// lanes, the sum of 2^(shift + ...).
inline __m512 SoftmaxRow(const float* scores, ColumnRange row, ColumnRange group, float log2_scale, float maximum,
                         int32_t shift, const float* value_scales, uint16_t* weights) {
  const __m512 factor = _mm512_set1_ps(log2_scale);
  const __m512 add = _mm512_set1_ps(static_cast<float>(shift) - maximum * log2_scale);
  auto* high = reinterpret_cast<__m256i*>(weights);
  auto* low = high + kPartition / 32;
  __m512 total = _mm512_setzero_ps();
  ForColumns(
      row, group,
      [&](int32_t c, auto keep0, auto keep1) {
        __m512 w0 = keep0(RoughExp2(_mm512_fmadd_ps(_mm512_loadu_ps(scores + c), factor, add)));
        __m512 w1 = keep1(RoughExp2(_mm512_fmadd_ps(_mm512_loadu_ps(scores + c + 16), factor, add)));
        total = _mm512_add_ps(total, _mm512_add_ps(w0, w1));
        w0 = keep0(_mm512_mul_ps(w0, _mm512_loadu_ps(value_scales + c)));  // an unwritten scale may be NaN
        w1 = keep1(_mm512_mul_ps(w1, _mm512_loadu_ps(value_scales + c + 16)));
        const __m256i s0 = _mm512_cvtusepi32_epi16(_mm512_cvtps_epi32(w0));
        const __m256i s1 = _mm512_cvtusepi32_epi16(_mm512_cvtps_epi32(w1));
        const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(s0), s1, 1);
        _mm256_storeu_si256(high + c / 32, _mm512_cvtepi16_epi8(_mm512_srli_epi16(both, 8)));
        _mm256_storeu_si256(low + c / 32, _mm512_cvtepi16_epi8(both));
      },
      [&](int32_t c) {
        _mm256_storeu_si256(high + c / 32, _mm256_setzero_si256());
        _mm256_storeu_si256(low + c / 32, _mm256_setzero_si256());
      });
  return total;
}

template <int kRows, int kVecs, bool kFetch>
void WeighRows(const WeighCall& call) {
  __m512i high[kRows][kVecs], low[kRows][kVecs];
  const int64_t stride = call.stride, padded = call.padded;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) high[r][v] = low[r][v] = _mm512_setzero_si512();
  }
  const auto* quads = reinterpret_cast<const char*>(call.weights);
  for (int32_t i = call.from; i < call.to;) {
    const int32_t end = i / 4 * 4 + 4 < call.to ? i / 4 * 4 + 4 : call.to;
    const uint32_t* at = call.chunks[i / 4] + i % 4 * stride + call.first_dim;
    const std::byte* fetch = nullptr;  // without kFetch `ahead` is not set
    if constexpr (kFetch) fetch = call.ahead[i / 4] + (i % 4 * stride + call.first_dim) * 4;
    for (; i < end; ++i, at += stride) {
      __m512i x[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        x[v] = _mm512_loadu_si512(at + 16 * v);
        if constexpr (kFetch) __builtin_prefetch(fetch + v * 64);
      }
      if constexpr (kFetch) fetch += stride * 4;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int quad[2];
        std::memcpy(quad, quads + (2 * r * kQuads + i) * 4, 4);
        std::memcpy(quad + 1, quads + ((2 * r + 1) * kQuads + i) * 4, 4);
        const __m512i w = _mm512_set1_epi32(quad[0]), y = _mm512_set1_epi32(quad[1]);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) high[r][v] = _mm512_dpbusd_epi32(high[r][v], w, x[v]);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) low[r][v] = _mm512_dpbusd_epi32(low[r][v], y, x[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      float* out = call.out + r * padded + call.first_dim + 16 * v;
      const __m512i before = call.resume ? _mm512_loadu_si512(out) : _mm512_setzero_si512();
      _mm512_storeu_si512(out, Join(high[r][v], low[r][v], before));
    }
  }
}

}  // namespace
}  // namespace tactus::compute
