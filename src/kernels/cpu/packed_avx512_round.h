// Rounds f32 values into packed tokens (kernels/packed.h), a block of 32, 64 or 128 columns in registers at a time.
// After simd_avx512.h; internal linkage.
#pragma once

#include "kernels/cpu/simd_avx512.h"
#include "kernels/packed.h"

namespace tactus::kernels {
namespace {

// Sums of 16 signed bytes each: `columns` (a multiple of 32) bytes from q, columns / 16 sums.
inline void SumBytes(const std::byte* q, int64_t columns, int32_t* sums) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80)), zero = _mm512_setzero_si512();
  for (int64_t c = 0; c < columns; c += 64) {
    const bool whole = columns - c >= 64;
    const __mmask8 lines = whole ? 0xff : 0x0f;
    // Bytes + 128 are unsigned, and vpsadbw adds eight of those.
    const __m512i eights = _mm512_sad_epu8(_mm512_xor_si512(_mm512_maskz_loadu_epi64(lines, q + c), sign), zero);
    const __m512i sixteens = _mm512_add_epi64(eights, _mm512_shuffle_epi32(eights, _MM_PERM_BADC));
    const __m512i centred = _mm512_sub_epi32(sixteens, _mm512_set1_epi32(16 * 128));
    const __m128i four = _mm512_castsi512_si128(
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), centred));
    _mm_mask_storeu_epi32(sums + c / 16, whole ? 0xf : 0x3, four);
  }
}

// The block of kVectors x 16 columns from column `first` of a token.
template <int kVectors, int kPlanes>
inline __attribute__((always_inline)) void RoundBlock(const __m512 (&v)[kVectors], int64_t token, int64_t first,
                                                      const PackedTokens& out) {
  // Magnitudes compare as integers do, and those of infinities and NaN are the largest.
  __m512i top = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
  }
  const int32_t bits = _mm512_reduce_max_epi32(top);
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
  const int64_t row = token * kPlanes, block = first / (16 * kVectors);
  std::byte* to = out.values + row * out.stride + first;
  out.scales[row * out.scale_count() + block] = kPlanes == 2 ? 256.0f * scale : scale;
  if constexpr (kPlanes == 2) out.scales[(row + 1) * out.scale_count() + block] = scale;
  const __m512 factor = _mm512_set1_ps(inverse);
  const __mmask16 keep = finite ? 0xffff : 0;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const __m512i q = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(v[i], factor));
    if constexpr (kPlanes == 2) {
      const __m128i low = _mm512_cvtepi32_epi8(q);
      const __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q, _mm512_cvtepi8_epi32(low)), 8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + out.stride + 16 * i), low);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), _mm512_cvtepi32_epi8(q));
    }
  }
}

// Columns [first, first + columns), whole blocks of a token; load(c) gives the 16 values from column c, zeros beyond
// the matrix.
template <int kVectors, int kPlanes, class Load>
void RoundBlocks(int64_t token, int64_t first, int64_t columns, const PackedTokens& out, Load load) {
  for (int64_t c = first; c < first + columns; c += 16 * kVectors) {
    __m512 v[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) v[i] = load(c + 16 * i);
    RoundBlock<kVectors, kPlanes>(v, token, c, out);
  }
  for (int64_t row = token * kPlanes; row < (token + 1) * kPlanes; ++row) {
    SumBytes(out.values + row * out.stride + first, columns, out.sums + row * out.sum_count() + first / 16);
  }
}

template <int kPlanes, class Load>
void RoundPlanes(int64_t token, int64_t first, int64_t columns, const PackedTokens& out, Load load) {
  switch (out.format.block) {
    case 32:
      return RoundBlocks<2, kPlanes>(token, first, columns, out, load);
    case 64:
      return RoundBlocks<4, kPlanes>(token, first, columns, out, load);
    default:
      return RoundBlocks<8, kPlanes>(token, first, columns, out, load);
  }
}

template <class Load>
void RoundColumns(int64_t token, int64_t first, int64_t columns, const PackedTokens& out, Load load) {
  if (out.format.integer) {
    return out.format.planes == 2 ? RoundPlanes<2>(token, first, columns, out, load)
                                  : RoundPlanes<1>(token, first, columns, out, load);
  }
  std::byte* to = out.values + token * out.stride;
  for (int64_t c = first; c < first + columns; c += 16) Simd::StoreBF16(to + 2 * c, load(c));
}

}  // namespace
}  // namespace tactus::kernels
