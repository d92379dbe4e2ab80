// The arithmetic of attention with vdpbf16ps: scores, softmax weights and weighted values of a few rows at a time. The
// order of every sum is stated in bf16.cc.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/kernel_set.h"

namespace tactus::kernels {
namespace {

constexpr int32_t kPairs = kPartition / 2;  // pairs of positions per partition
constexpr int32_t kGroupRows = 8;           // rows that go through the tiles together
constexpr int32_t kKeyVectors = kPartition / 16;

inline __m512 Dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Scores of kRows rows against kVecs vectors of 16 positions: scores[r * kPartition + 16 v + lane]. q: pairs, rows
// q_stride apart; keys[v]: the pairs of one dimension pair, the next `stride` further on; scales: of positions, or
// null. kFetch: fetches `fetch_step` bytes of ahead[v] for each vector it reads of keys[v].
template <int kRows, int kVecs, bool kFetch>
void ScoreRows(const uint32_t* q, int64_t q_stride, const uint32_t* const* keys, int64_t stride, int32_t dim_pairs,
               const float* scales, const std::byte* const* ahead, int32_t fetch_step, float* scores) {
  __m512 acc[kRows][kVecs];
  const uint32_t* at[kVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) at[v] = keys[v];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = _mm512_setzero_ps();
  }
  for (int32_t d = 0; d < dim_pairs; ++d) {
    __m512i k[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      k[v] = _mm512_loadu_si512(at[v] + d * stride);
      if (kFetch) __builtin_prefetch(ahead[v] + d * fetch_step);
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
    const __m512 s = scales != nullptr ? _mm512_loadu_ps(scales + 16 * v) : _mm512_set1_ps(1.0f);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(scores + r * kPartition + 16 * v, scales != nullptr ? _mm512_mul_ps(acc[r][v], s) : acc[r][v]);
    }
  }
}

// 2^x for x <= 0 or little more, to 7.5e-5 (a 25th of what rounding to bf16 adds): a polynomial of degree 3 on [0, 1)
// between two instructions that take no unit from the dot products.
inline __m512 RoughExp2(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.078024514f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.226067245f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.695833445f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.999925256f));
  return _mm512_scalef_ps(p, x);
}

// 2^x for x <= 0 or little more, at least 2^-126: a polynomial of degree 4 on [-1/2, 1/2] (relative error 3e-6; what it
// gives is rounded to bf16 or scales what has been), the exponent by integers: other units than the rest of softmax
// needs.
inline __m512 Exp2(__m512 x) {
  const __m512 magic = _mm512_set1_ps(12582912.0f);  // 1.5 * 2^23: the sum's low bits are x rounded
  x = _mm512_max_ps(_mm512_set1_ps(-126.0f), x);     // the second where one is NaN
  const __m512 shifted = _mm512_add_ps(x, magic);
  const __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, magic));
  __m512 p = _mm512_set1_ps(0.009582853f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.055906426f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24024099f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931242f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
}

inline float SumLanes(__m512 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

inline float MaxLane(__m512 v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// Lanes of the vector at `first` that lie within [from, to).
inline __mmask16 Within(int32_t first, int32_t from, int32_t to) {
  const int32_t low = from > first ? from - first : 0, high = to - first;
  const uint32_t below = high >= 16 ? 0xffffu : high <= 0 ? 0u : (1u << high) - 1u;
  const uint32_t skipped = low >= 16 ? 0xffffu : (1u << low) - 1u;
  return static_cast<__mmask16>(below & ~skipped);
}

// Where a row's visible columns lie within the partition, and those of its group, which get weights (zeros around its
// own).
struct ColumnRange {
  int32_t from, to;
};

// The largest score that a row sees is that of the lanes.
inline __m512 RowMaximum(const float* scores, ColumnRange row) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 top0 = lowest, top1 = lowest;
  const int32_t whole_from = (row.from + 31) / 32 * 32, whole_to = row.to / 32 * 32;  // columns that need no mask
  auto mask_max = [&](int32_t c) {
    top0 = _mm512_mask_max_ps(top0, Within(c, row.from, row.to), top0, _mm512_loadu_ps(scores + c));
    top1 = _mm512_mask_max_ps(top1, Within(c + 16, row.from, row.to), top1, _mm512_loadu_ps(scores + c + 16));
  };
  if (row.from < whole_from) mask_max(whole_from - 32);
  for (int32_t c = whole_from; c < whole_to; c += 32) {
    top0 = _mm512_max_ps(top0, _mm512_loadu_ps(scores + c));
    top1 = _mm512_max_ps(top1, _mm512_loadu_ps(scores + c + 16));
  }
  if (whole_to >= whole_from && whole_to < row.to) mask_max(whole_to);
  return _mm512_max_ps(top0, top1);
}

// One row's scores to bf16 weights 2^(log2_scale * (score - maximum)), times value_scales where kScaled; columns of the
// group that are not the row's become 0. Returns, in lanes, the sum of the weights as rounded, or as they were before
// kScaled.
template <bool kScaled>
inline __m512 SoftmaxRow(const float* scores, ColumnRange row, ColumnRange group, float log2_scale, float maximum,
                         const float* value_scales, uint16_t* weights) {
  const __m512 factor = _mm512_set1_ps(log2_scale), shift = _mm512_set1_ps(-maximum * log2_scale);
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);  // pairs of 1.0
  __m512 total = _mm512_setzero_ps();
  auto weigh = [&](int32_t c, auto&& keep0, auto&& keep1) {
    __m512 w0 = keep0(RoughExp2(_mm512_fmadd_ps(_mm512_loadu_ps(scores + c), factor, shift)));
    __m512 w1 = keep1(RoughExp2(_mm512_fmadd_ps(_mm512_loadu_ps(scores + c + 16), factor, shift)));
    if (kScaled) {
      total = _mm512_add_ps(total, _mm512_add_ps(w0, w1));
      w0 = keep0(_mm512_mul_ps(w0, _mm512_loadu_ps(value_scales + c)));
      w1 = keep1(_mm512_mul_ps(w1, _mm512_loadu_ps(value_scales + c + 16)));
    }
    const __m512i rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(w1, w0));
    if (!kScaled) total = Dot(total, rounded, ones);
    _mm512_storeu_si512(weights + c, rounded);
  };
  auto edge = [&](int32_t c) {
    const __mmask16 m0 = Within(c, row.from, row.to), m1 = Within(c + 16, row.from, row.to);
    weigh(
        c, [m0](__m512 w) { return _mm512_maskz_mov_ps(m0, w); },
        [m1](__m512 w) { return _mm512_maskz_mov_ps(m1, w); });
  };
  auto all = [](__m512 w) { return w; };
  int32_t c = group.from / 32 * 32;
  for (; c + 32 <= row.from; c += 32) _mm512_storeu_si512(weights + c, _mm512_setzero_si512());
  if (c < row.from) {
    edge(c);
    c += 32;
  }
  for (; c + 32 <= row.to; c += 32) weigh(c, all, all);
  if (c < row.to) {
    edge(c);
    c += 32;
  }
  for (; c < group.to; c += 32) _mm512_storeu_si512(weights + c, _mm512_setzero_si512());
  return total;
}

// out[r * padded + 16 v + lane] = weights of pairs [from, to) times their values, ascending, added to what is there
// with `resume`. Pair i lies at chunks[i / 8] + i % 8 * stride. kFetch: as ScoreRows, of ahead[i / 8].
template <int kRows, int kVecs, bool kFetch>
void WeighRows(const uint16_t* weights, const uint32_t* const* chunks, int32_t from, int32_t to, int64_t stride,
               int64_t first_dim, bool resume, const std::byte* const* ahead, int32_t fetch_step, float* out,
               int64_t padded) {
  __m512 acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = resume ? _mm512_loadu_ps(out + r * padded + first_dim + 16 * v) : _mm512_setzero_ps();
    }
  }
  const auto* pairs = reinterpret_cast<const char*>(weights);
  for (int32_t i = from; i < to;) {
    const int32_t end = i / 8 * 8 + 8 < to ? i / 8 * 8 + 8 : to;
    const uint32_t* at = chunks[i / 8] + i % 8 * stride + first_dim;
    const std::byte* fetch = nullptr;  // without kFetch nobody has filled `ahead`
    if constexpr (kFetch) fetch = ahead[i / 8] + (i % 8 * stride + first_dim) * fetch_step / 16;
    for (; i < end; ++i, at += stride) {
      __m512i x[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        x[v] = _mm512_loadu_si512(at + 16 * v);
        if constexpr (kFetch) __builtin_prefetch(fetch + v * fetch_step);
      }
      if constexpr (kFetch) fetch += stride * fetch_step / 16;
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
    for (int v = 0; v < kVecs; ++v) _mm512_storeu_ps(out + r * padded + first_dim + 16 * v, acc[r][v]);
  }
}

// SpreadHead (kv_layout.h), bit for bit, of `vectors` * 16 dimensions in runs of n, a power of two >= 16.
inline void SpreadVectors(__m512* x, int32_t vectors, int32_t n) {
  // Lanes whose bit is set take partner - own, the others partner + own.
  auto signs = [](int bit) {
    return _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), static_cast<__mmask16>(bit), _mm512_set1_ps(-1.0f));
  };
  const __m512 s1 = signs(0xaaaa), s2 = signs(0xcccc), s4 = signs(0xf0f0), s8 = signs(0xff00);
  for (int32_t v = 0; v < vectors; ++v) {
    __m512 a = x[v];
    a = _mm512_fmadd_ps(a, s1, _mm512_permute_ps(a, 0xb1));
    a = _mm512_fmadd_ps(a, s2, _mm512_permute_ps(a, 0x4e));
    a = _mm512_fmadd_ps(a, s4, _mm512_shuffle_f32x4(a, a, 0xb1));
    x[v] = _mm512_fmadd_ps(a, s8, _mm512_shuffle_f32x4(a, a, 0x4e));
  }
  for (int32_t half = 1; half < n / 16; half *= 2) {
    for (int32_t v = 0; v < vectors; ++v) {
      if ((v & half) != 0) continue;
      const __m512 a = x[v], b = x[v + half];
      x[v] = _mm512_add_ps(a, b);
      x[v + half] = _mm512_sub_ps(a, b);
    }
  }
  const __m512 norm = _mm512_set1_ps(1.0f / __builtin_sqrtf(static_cast<float>(n)));
  for (int32_t v = 0; v < vectors; ++v) x[v] = _mm512_mul_ps(x[v], norm);
}

}  // namespace
}  // namespace tactus::kernels
