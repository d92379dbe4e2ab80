// Rows of attention over int8 K and V: q and the softmax weights as 16-bit integers, split into two of 8 bits. Both
// sets of loops use them (int8_tile.h, amx/int8_tile.h). int8.cc states their rounding.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/place.h"
#include "compute/kernels/attention/avx512/rows.h"
#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/attention/schedule.h"

namespace tactus::compute {
namespace {

// (high << 8) + low + offset.
inline __m512i Join(__m512i high, __m512i low, __m512i offset) {
  return _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low), offset);
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

// The part of a Format (tiles.h) that does not depend on the loops.
struct Int8Rows {
  static constexpr bool kCodes = true;

  static void RoundQuery(const AttentionCall& call, const float* from, const Buffers& b) {
    const int32_t head_dim = call.kv->head_dim, run = head_dim & -head_dim;
    alignas(64) float q[kKvHeadDimMax];
    std::memcpy(q, from, static_cast<size_t>(head_dim) * sizeof(float));
    for (int64_t d = head_dim; d < call.padded; ++d) q[d] = 0.0f;
    if (run >= 16) {
      SpreadVectors(reinterpret_cast<__m512*>(q), head_dim / 16, run);
    } else {
      SpreadHead(q, head_dim);
    }
    // Bits of magnitudes compare as the magnitudes do, with infinity and NaN on top.
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t d = 0; d < call.padded; d += 16) {
      top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_load_si512(q + d), magnitude));
    }
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(top))));
    const bool finite = largest <= 3.4028234e38f, zero = largest < 1e-30f;
    *b.q_scale = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / 32639.0f;
    const __m512 inverse = _mm512_set1_ps(!finite || zero ? 0.0f : 32639.0f / largest);
    auto* high = reinterpret_cast<std::byte*>(b.q);
    std::byte* low = high + call.padded;
    __m512i sum = _mm512_setzero_si512();
    for (int64_t d = 0; d < call.padded; d += 16) {
      const __m512i x = finite ? _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(q + d), inverse)) : sum;
      const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
      sum = _mm512_add_epi32(sum, x);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(high + d), _mm512_cvtepi32_epi8(upper));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(low + d), _mm512_cvtepi32_epi8(x));
    }
    *b.q_offset = -128 * _mm512_reduce_add_epi32(sum);
  }

  static void Weights(const Buffers& b, const ColumnRange* own, ColumnRange group, int32_t n, float log2_scale,
                      float* maximum, __m512* sums, float* unit) {
    float largest = 0;
    for (int32_t r = 0; r < n; ++r) {
      unit[r] = 1.0f;
      if (own[r].from >= own[r].to) continue;
      const bool again = r > 0 && own[r].from == own[r - 1].from && own[r].to == own[r - 1].to;
      if (!again) largest = LargestScale(b.value_scales, own[r]);
      const int32_t shift = WeightShift(largest);
      sums[r] = SoftmaxRow(b.scores + r * kPartition, own[r], group, log2_scale * b.q_scale[r], maximum[r], shift,
                           b.value_scales, b.weights + r * kPartition);
      maximum[r] *= b.q_scale[r];
      unit[r] = PowerOfTwo(-shift) + 0.0f * largest;  // NaN stays NaN
    }
  }
};

}  // namespace
}  // namespace tactus::compute
