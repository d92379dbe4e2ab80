// The arithmetic of attention with vdpbf16ps: scores and weighted values of a few rows at a time. bf16.cc states the
// order of every sum.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/bf16_rows.h"

namespace tactus::compute {
namespace {

constexpr int32_t kPairs = kPartition / 2;  // pairs of positions per partition

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
