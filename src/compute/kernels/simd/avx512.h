// Vectors of 16 f32 lanes: AVX-512 F, BW, VL, DQ. Interface: portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tactus::compute {
namespace {

struct Simd {
  typedef int16_t Int16Unaligned __attribute__((aligned(1), may_alias));
  using F = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kLinearTokens = 6, kLinearRows = 4;  // 24 accumulators of 32 registers
  static constexpr int kAttentionRows = 4, kAttentionVecs = 4;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float v) { return _mm512_set1_ps(v); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F LoadBF16(const void* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static F LoadF16(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
  static F SpreadF16(const void* p) {
    return _mm512_cvtph_ps(_mm256_set1_epi16(*static_cast<const Int16Unaligned*>(p)));
  }
  static F LoadInt8(const int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // A nibble has 16 values and a register 16 lanes: the values are computed once and looked up.
  template <class Value, class Use>
  static void Nibbles(const uint8_t* p, Value value, Use use) {
    const F table = value(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    use(0, _mm512_permutexvar_ps(bytes, table));  // the index is the low four bits
    use(16, _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table));
  }
  static void Prefetch(const void* p) { __builtin_prefetch(p); }
  static __m512i RoundedBits(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
  }
  static void StoreBF16(void* p, F v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundedBits(v), 16)));
  }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F MulAdd(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F ScaleByPowerOf2(F x, F n) { return _mm512_scalef_ps(x, n); }
  static F RoundNearest(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static __mmask16 LaneLess(int n) {
    return n >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << (n < 0 ? 0 : n)) - 1u);
  }
  static F KeepFirst(F v, int n, F other) { return _mm512_mask_mov_ps(other, LaneLess(n), v); }
  static F KeepFrom(F v, int n, F other) { return _mm512_mask_mov_ps(v, LaneLess(n), other); }
  static F ZeroBelow(F x, float limit, F v) {
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ), _mm512_setzero_ps());
  }
  // Halves are added until one lane is left: (i, i + 8), (i, i + 4), (i, i + 2), (0, 1).
  static float Sum(F v) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  static void Sum4(F a, F b, F c, F d, float* out) {
    // Lanes of 128 bits: first i + (i + 8) for two vectors at a time, then i + (i + 4) for all four.
    const F ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const F cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    F s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
    const __m512i first_of_lanes = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first_of_lanes, s)));
  }
  static float MaxLane(F v) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  // Rows r become columns; output row 4l + c is stored in out[4l + c].
  static void Transpose16(F* r, F* out) {
    F t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {  // now 4x4 tiles are transposed within 128-bit lanes
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {  // then the 4x4 grid of lanes
      const F ab02 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0x88), ab13 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0xdd);
      const F cd02 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0x88);
      const F cd13 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0xdd);
      out[c] = _mm512_shuffle_f32x4(ab02, cd02, 0x88);
      out[c + 4] = _mm512_shuffle_f32x4(ab13, cd13, 0x88);
      out[c + 8] = _mm512_shuffle_f32x4(ab02, cd02, 0xdd);
      out[c + 12] = _mm512_shuffle_f32x4(ab13, cd13, 0xdd);
    }
  }
  static void Transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    F r[16], out[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = Load(from + i * stride);
    Transpose16(r, out);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) Store(to + i * to_stride, out[i]);
  }
  // Columns [first, first + 32) of 16 bf16 rows become 32 f32 rows: a 32-bit lane holds two neighbouring columns.
  static constexpr bool kTransposesPairs = true;
  static void TransposePairs(const uint16_t* const* rows, int64_t first, float* to, int64_t to_stride) {
    F r[16], out[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(rows[i] + first);
    Transpose16(r, out);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512i pair = _mm512_castps_si512(out[i]);
      Store(to + 2 * i * to_stride, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)));
      Store(to + (2 * i + 1) * to_stride, _mm512_castsi512_ps(_mm512_and_si512(pair, high)));
    }
  }
};

}  // namespace
}  // namespace tactus::compute
