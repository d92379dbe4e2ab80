// Rounds f32 values into packed tokens (kernels/packed/packed.h), a block of 128 columns in registers at a time.
// Internal linkage.
#pragma once

#include "kernels/packed/packed.h"
#include "kernels/simd/avx512.h"

namespace tactus::kernels {
namespace {

// The sum over each of eight vectors.
inline __m256i SumEach(const __m512i (&v)[8]) {
  __m512i pairs[4], fours[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    pairs[i] =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    fours[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                                _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  // Quarters of a register hold parts of the same sums: 0 and 2, 1 and 3, then those together.
  const __m512i halves =
      _mm512_add_epi32(_mm512_shuffle_i32x4(fours[0], fours[1], 0x44), _mm512_shuffle_i32x4(fours[0], fours[1], 0xee));
  const __m512i whole =
      _mm512_add_epi32(_mm512_shuffle_i32x4(halves, halves, 0x08), _mm512_shuffle_i32x4(halves, halves, 0x0d));
  return _mm512_castsi512_si256(whole);
}

// Shifts of a token block's columns, `block` (32 or 64) to each, and what to multiply them by. tops, top: the largest
// magnitudes as integers, of 32 columns and of all.
inline void ShiftColumns(const __m512i (&tops)[4], int32_t top, float inverse, int32_t* shifts, int32_t block,
                         float (&factors)[4]) {
  int32_t own[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) own[i] = _mm512_reduce_max_epi32(tops[i]);
  for (int i = 0; i < 4; ++i) {
    const int32_t other = own[block == 64 ? i ^ 1 : i], largest = own[i] > other ? own[i] : other;
    const int32_t times = (top - largest) >> 23, k = times < kTokenShift ? times : kTokenShift;
    factors[i] = inverse * static_cast<float>(1 << k);
    shifts[i * 32 / block] = inverse > 0.0f ? kTokenShift - k : 0;
  }
}

// The kTokenBlock columns from column `first` of a token.
template <int kPlanes>
inline __attribute__((always_inline)) void RoundBlock(const __m512 (&v)[8], int64_t token, int64_t first,
                                                      const PackedTokens& out) {
  // Magnitudes compare as integers do, and those of infinities and NaN are the largest.
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i tops[4];  // of 32 columns each
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    tops[i] = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v[2 * i]), magnitude),
                               _mm512_and_si512(_mm512_castps_si512(v[2 * i + 1]), magnitude));
  }
  const int32_t bits =
      _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_max_epi32(tops[0], tops[1]), _mm512_max_epi32(tops[2], tops[3])));
  float largest, scale = 0, inverse = 0;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  constexpr float kLimit = kPlanes == 2 ? 32512.0f : 127.0f;
  const bool finite = bits < 0x7f800000;
  if (!finite) {
    scale = __builtin_nanf("");
  } else if (largest >= kTokenZero) {
    scale = largest / kLimit;
    inverse = kLimit / largest;
  }
  float factors[4] = {inverse, inverse, inverse, inverse};
  if constexpr (kPlanes == 1) {
    if (out.format.has_shifts()) {
      scale *= 1.0f / (1 << kTokenShift);
      ShiftColumns(tops, bits, inverse, out.shifts + token * out.shift_count() + first / out.format.block,
                   out.format.block, factors);
    }
  }
  std::byte* to = out.values + token * kPlanes * out.stride + first;
  __m512i q[8];
  out.scales[token * out.scale_count() + first / kTokenBlock] = scale;
  const __mmask16 keep = finite ? 0xffff : 0;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    q[i] = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(v[i], _mm512_set1_ps(factors[i / 2])));
    if constexpr (kPlanes == 2) {
      const __m128i low = _mm512_cvtepi32_epi8(q[i]);
      const __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q[i], _mm512_cvtepi8_epi32(low)), 8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + out.stride + 16 * i), low);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), _mm512_cvtepi32_epi8(q[i]));
    }
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.sums + token * out.sum_count() + first / 16), SumEach(q));
}

// Columns [first, first + columns) of a token, for integers whole blocks; load(c) gives the 16 values from column c,
// zeros beyond the matrix.
template <class Load>
void RoundColumns(int64_t token, int64_t first, int64_t columns, const PackedTokens& out, Load load) {
  if (out.format.values == TokenValues::kF32) {
    auto* to = reinterpret_cast<float*>(out.values + token * out.stride);
    for (int64_t c = first; c < first + columns; c += 16) Simd::Store(to + c, load(c));
    return;
  }
  if (!out.format.integer()) {
    std::byte* to = out.values + token * out.stride;
    for (int64_t c = first; c < first + columns; c += 16) Simd::StoreBF16(to + 2 * c, load(c));
    return;
  }
  for (int64_t c = first; c < first + columns; c += kTokenBlock) {
    __m512 v[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) v[i] = load(c + 16 * i);
    out.format.planes == 2 ? RoundBlock<2>(v, token, c, out) : RoundBlock<1>(v, token, c, out);
  }
}

}  // namespace
}  // namespace tactus::kernels
