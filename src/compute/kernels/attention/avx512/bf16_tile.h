// The arithmetic of attention with vdpbf16ps: scores, softmax weights and weighted values of a few rows at a time.
// bf16.cc states the order of every sum.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/rows.h"

namespace tactus::compute {
namespace {

constexpr int32_t kPairs = kPartition / 2;  // pairs of positions per partition

inline __m512 Dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// kFetch: prefetches call.ahead.
template <int kRows, int kVecs, bool kFetch>
void ScoreRows(const ScoreCall& call) {
  __m512 acc[kRows][kVecs];
  const uint32_t *q = call.q, *at[kVecs];
  const std::byte* ahead[kVecs];
  const int64_t q_stride = call.q_stride, stride = call.stride;
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    at[v] = call.keys[v];
    if (kFetch) ahead[v] = call.ahead[v];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = _mm512_setzero_ps();
  }
  for (int32_t d = 0; d < call.words; ++d) {
    __m512i k[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      k[v] = _mm512_loadu_si512(at[v] + d * stride);
      if (kFetch) __builtin_prefetch(ahead[v] + d * 64);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(q[r * q_stride + d]));
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Dot(acc[r][v], x, k[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(call.scores + r * kPartition + 16 * v, acc[r][v]);
  }
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

template <int kRows, int kVecs, bool kFetch>
void WeighRows(const WeighCall& call) {
  __m512 acc[kRows][kVecs];
  const int64_t stride = call.stride, padded = call.padded;
  float* out = call.out + call.first_dim;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = call.resume ? _mm512_loadu_ps(out + r * padded + 16 * v) : _mm512_setzero_ps();
    }
  }
  const auto* pairs = reinterpret_cast<const char*>(call.weights);
  for (int32_t i = call.from; i < call.to;) {
    const int32_t end = i / 8 * 8 + 8 < call.to ? i / 8 * 8 + 8 : call.to;
    const uint32_t* at = call.chunks[i / 8] + i % 8 * stride + call.first_dim;
    const std::byte* fetch = nullptr;  // without kFetch `ahead` is not set
    if constexpr (kFetch) fetch = call.ahead[i / 8] + (i % 8 * stride + call.first_dim) * 4;
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
        int pair;
        std::memcpy(&pair, pairs + (r * kPairs + i) * 4, sizeof pair);
        const __m512i w = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) acc[r][v] = Dot(acc[r][v], w, x[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) _mm512_storeu_ps(out + r * padded + 16 * v, acc[r][v]);
  }
}

}  // namespace
}  // namespace tactus::compute
