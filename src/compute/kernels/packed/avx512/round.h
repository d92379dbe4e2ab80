// Rounds f32 values to packed tokens (compute/kernels/packed/packed.h), a block of 128 columns in registers at a time.
// Internal linkage.
#pragma once

#include "compute/kernels/packed/packed.h"
#include "compute/kernels/simd/avx512.h"

namespace tactus::compute {
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
  // Quarters of a register hold parts of the same sums: adds 0 and 2, 1 and 3, then those.
  const __m512i halves =
      _mm512_add_epi32(_mm512_shuffle_i32x4(fours[0], fours[1], 0x44), _mm512_shuffle_i32x4(fours[0], fours[1], 0xee));
  const __m512i whole =
      _mm512_add_epi32(_mm512_shuffle_i32x4(halves, halves, 0x08), _mm512_shuffle_i32x4(halves, halves, 0x0d));
  return _mm512_castsi512_si256(whole);
}

// In every lane the largest of its four neighbours.
inline __m512i LargestOfFour(__m512i v) {
  v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
  return _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
}

// Lanes of the first four neighbours with the largest magnitude, in their vector; none in the others. Returns their
// first column.
template <int kVectors>
inline int32_t FindWide(const __m512i* magnitudes, __mmask16* lanes) {
  __m512i fours[kVectors], most = _mm512_setzero_si512();
  for (int i = 0; i < kVectors; ++i) most = _mm512_max_epu32(most, fours[i] = LargestOfFour(magnitudes[i]));
  const __m512i top = _mm512_set1_epi32(static_cast<int32_t>(_mm512_reduce_max_epu32(most)));
  uint64_t holders = 0;
  for (int i = 0; i < kVectors; ++i) holders |= uint64_t{_mm512_cmpeq_epi32_mask(fours[i], top)} << (16 * i);
  const int32_t first = __builtin_ctzll(holders);
  const uint64_t group = uint64_t{0xf} << first;
  for (int i = 0; i < kVectors; ++i) lanes[i] = static_cast<__mmask16>(group >> (16 * i));
  return first;
}

// Rounds the kTokenBlock columns from column `first` of a row; leaves the remainder in v.
inline __attribute__((always_inline)) void RoundPart(__m512 (&v)[8], int64_t row, int64_t first,
                                                     const PackedTokens& out) {
  const TokenFormat& f = out.format;
  // Magnitudes compare as integers, with infinities and NaN on top.
  __m512i top[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) top[i] = _mm512_castps_si512(_mm512_abs_ps(v[i]));
  __mmask16 lanes[8] = {};  // of wide groups
  WideGroup* const wide = out.wide + (f.wide > 0 ? row * out.wide_count() + first / f.wide : 0);
  if (f.wide == 64) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) wide[i].first = FindWide<4>(top + 4 * i, lanes + 4 * i);
  } else if (f.wide == 32) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) wide[i].first = FindWide<2>(top + 2 * i, lanes + 2 * i);
  } else if (f.wide == 16) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) wide[i].first = FindWide<1>(top + i, lanes + i);
  }
  const __m512 narrow_reach = _mm512_set1_ps(kNarrowReach), wide_reach = _mm512_set1_ps(kWideReach);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512 reach = _mm512_mask_mov_ps(narrow_reach, lanes[i], wide_reach);
    top[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(top[i]), reach));
  }
  float scale[4], inverse[4];  // per 32 columns
  const int each = f.block / 32;
  for (int i = 0; i < 4; i += each) {
    __m512i most = _mm512_max_epi32(top[2 * i], top[2 * i + 1]);
    for (int j = 1; j < each; ++j)
      most = _mm512_max_epi32(most, _mm512_max_epi32(top[2 * (i + j)], top[2 * (i + j) + 1]));
    const int32_t bits = _mm512_reduce_max_epi32(most);
    float largest;
    __builtin_memcpy(&largest, &bits, sizeof largest);
    const bool finite = bits < 0x7f800000, zero = !finite || largest < kTokenZero;
    for (int j = i; j < i + each; ++j) {
      scale[j] = !finite ? __builtin_nanf("") : zero ? 0.0f : largest;
      inverse[j] = zero ? 0.0f : 1.0f / largest;
    }
    out.scales[row * out.scale_count() + (first + i * 32) / f.block] = scale[i];
  }
  std::byte* to = out.values + row * out.stride + first;
  __m512i q[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __mmask16 keep = scale[i / 2] > 0.0f ? 0xffff : 0;
    q[i] = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(v[i], _mm512_set1_ps(inverse[i / 2])));
    v[i] = _mm512_sub_ps(v[i], _mm512_mul_ps(_mm512_cvtepi32_ps(q[i]), _mm512_set1_ps(scale[i / 2])));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), _mm512_cvtepi32_epi8(q[i]));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.sums + row * out.sum_count() + first / 16), SumEach(q));
  const auto store_upper = [&](int vector, WideGroup* group) {  // moves its four lanes to the front, then stores their
                                                                // upper bytes
    const __m512i four = _mm512_maskz_compress_epi32(lanes[vector], q[vector]);
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(four, _mm512_set1_epi32(128)), 8);
    const int32_t bytes = _mm_cvtsi128_si32(_mm512_cvtepi32_epi8(upper));
    __builtin_memcpy(group->upper, &bytes, sizeof bytes);
  };
  const int vectors = f.wide / 16;  // vectors per group
#pragma GCC unroll 8
  for (int i = 0; i < 8 && vectors > 0; ++i) {
    if (lanes[i] != 0) store_upper(i, wide + i / vectors);
  }
}

// Rounds the kTokenBlock columns from column `first` of a token.
inline __attribute__((always_inline)) void RoundBlock(__m512 (&v)[8], int64_t token, int64_t first,
                                                      const PackedTokens& out) {
  RoundPart(v, token * out.format.parts, first, out);
  if (out.format.parts == 2) RoundPart(v, 2 * token + 1, first, out);
}

// Rounds columns [first, first + columns) of a token, for integers whole blocks; load(c) returns the 16 values from
// column c, zeros beyond the matrix.
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
    RoundBlock(v, token, c, out);
  }
}

}  // namespace
}  // namespace tactus::compute
