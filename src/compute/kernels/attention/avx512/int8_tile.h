// The arithmetic of attention with vpdpbusd: scores and weighted values of a few rows at a time, straight from the
// codes of K and V. Sums are exact; int8.cc states their rounding.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/int8_rows.h"

namespace tactus::compute {
namespace {

constexpr int32_t kQuads = kPartition / 4;  // groups of positions per partition

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
