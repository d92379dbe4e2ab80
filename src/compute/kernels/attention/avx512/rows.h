// AVX-512 code for rows of attention, for any format of K and V: powers of two, sums and maxima over lanes, visible
// columns.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/attention/avx512/calls.h"

namespace tactus::compute {
namespace {

constexpr int32_t kSoftmaxRows = 8;  // rows whose lanes are reduced together
constexpr int32_t kKeyVectors = kPartition / 16;

// 2^x for x <= 0 or little more, to 7.5e-5 (1/25 of the error of rounding to bf16): a polynomial of degree 3 on [0, 1)
// between two instructions that do not compete with the dot products for units.
inline __m512 RoughExp2(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.078024514f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.226067245f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.695833445f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.999925256f));
  return _mm512_scalef_ps(p, x);
}

// 2^x for x <= 0 or little more, at least 2^-126: a polynomial of degree 4 on [-1/2, 1/2] (relative error 3e-6; the
// result is rounded to bf16 or scales earlier sums). The exponent is computed with integers, on units that the rest of
// softmax does not use.
inline __m512 Exp2(__m512 x) {
  const __m512 magic = _mm512_set1_ps(12582912.0f);  // 1.5 * 2^23: the sum's low bits are x rounded
  x = _mm512_max_ps(_mm512_set1_ps(-126.0f), x);     // returns the second operand where one is NaN
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

// Lanes of the vector at `first` that are within [from, to).
inline __mmask16 Within(int32_t first, int32_t from, int32_t to) {
  const int32_t low = from > first ? from - first : 0, high = to - first;
  const uint32_t below = high >= 16 ? 0xffffu : high <= 0 ? 0u : (1u << high) - 1u;
  const uint32_t skipped = low >= 16 ? 0xffffu : (1u << low) - 1u;
  return static_cast<__mmask16>(below & ~skipped);
}

// A row's visible columns within the partition, and its group's columns, which get weights (zeros outside the row's
// own).
struct ColumnRange {
  int32_t from, to;
};

// The largest score that a row attends to is the maximum over these lanes.
inline __m512 RowMaximum(const float* scores, ColumnRange row) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 top0 = lowest, top1 = lowest;
  const int32_t whole_from = (row.from + 31) / 32 * 32, whole_to = row.to / 32 * 32;  // columns without a mask
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

// Calls weigh(c, keep0, keep1) for each 32 columns with some that the row attends to, where keep zeroes the other
// lanes; clear(c) for the group's other columns.
template <class Weigh, class Clear>
inline void ForColumns(ColumnRange row, ColumnRange group, Weigh weigh, Clear clear) {
  auto edge = [&](int32_t c) {
    const __mmask16 m0 = Within(c, row.from, row.to), m1 = Within(c + 16, row.from, row.to);
    weigh(
        c, [m0](__m512 w) { return _mm512_maskz_mov_ps(m0, w); },
        [m1](__m512 w) { return _mm512_maskz_mov_ps(m1, w); });
  };
  auto all = [](__m512 w) { return w; };
  int32_t c = group.from / 32 * 32;
  for (; c + 32 <= row.from; c += 32) clear(c);
  if (c < row.from) {
    edge(c);
    c += 32;
  }
  for (; c + 32 <= row.to; c += 32) weigh(c, all, all);
  if (c < row.to) {
    edge(c);
    c += 32;
  }
  for (; c < group.to; c += 32) clear(c);
}

// SpreadHead (kv_layout.h), with the same bits, for `vectors` * 16 dimensions in runs of n, a power of two >= 16.
inline void SpreadVectors(__m512* x, int32_t vectors, int32_t n) {
  // Lanes with a set bit get partner - own, the others partner + own.
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
}  // namespace tactus::compute
