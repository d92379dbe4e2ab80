// Rows of attention in bf16: q and the softmax weights, rounded. Both sets of loops over bf16 K and V use them
// (bf16_tile.h, amx/bf16_tile.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/kernels/attention/avx512/place.h"
#include "compute/kernels/attention/avx512/rows.h"
#include "compute/kernels/attention/schedule.h"

namespace tactus::compute {
namespace {

inline __m512 Dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// One row's scores to bf16 weights 2^(log2_scale * (score - maximum)); columns of the group that the row does not
// attend to become 0. Returns, in lanes, the sum of the rounded weights.
inline __m512 SoftmaxRow(const float* scores, ColumnRange row, ColumnRange group, float log2_scale, float maximum,
                         uint16_t* weights) {
  const __m512 factor = _mm512_set1_ps(log2_scale), shift = _mm512_set1_ps(-maximum * log2_scale);
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);  // pairs of 1.0
  __m512 total = _mm512_setzero_ps();
  ForColumns(
      row, group,
      [&](int32_t c, auto keep0, auto keep1) {
        const __m512 w0 = keep0(RoughExp2(_mm512_fmadd_ps(_mm512_loadu_ps(scores + c), factor, shift)));
        const __m512 w1 = keep1(RoughExp2(_mm512_fmadd_ps(_mm512_loadu_ps(scores + c + 16), factor, shift)));
        const __m512i rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(w1, w0));
        total = Dot(total, rounded, ones);
        _mm512_storeu_si512(weights + c, rounded);
      },
      [&](int32_t c) { _mm512_storeu_si512(weights + c, _mm512_setzero_si512()); });
  return total;
}

// The part of a Format (tiles.h) that does not depend on the loops.
struct Bf16Rows {
  static constexpr bool kCodes = false;

  static void RoundQuery(const AttentionCall& call, const float* from, const Buffers& b) {
    const int32_t head_dim = call.kv->head_dim;
    int32_t d = 0;
    for (; d + 32 <= head_dim; d += 32) {
      const __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + d + 16), _mm512_loadu_ps(from + d));
      _mm512_storeu_si512(b.q + d / 2, reinterpret_cast<__m512i>(pair));
    }
    for (; d < call.padded; d += 16) {
      const __m512 x = _mm512_maskz_loadu_ps(Within(d, 0, head_dim), from + d);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(b.q + d / 2), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    }
  }

  static void Weights(const Buffers& b, const ColumnRange* own, ColumnRange group, int32_t n, float log2_scale,
                      float* maximum, __m512* sums, float* unit) {
    for (int32_t r = 0; r < n; ++r) {
      unit[r] = 1.0f;
      if (own[r].from >= own[r].to) continue;
      sums[r] =
          SoftmaxRow(b.scores + r * kPartition, own[r], group, log2_scale, maximum[r], b.weights + r * kPartition);
    }
  }
};

}  // namespace
}  // namespace tactus::compute
