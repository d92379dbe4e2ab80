// Integer dot products of AVX2 for packed_tile.h. Any unsigned code and any signed value, exactly: vpmaddubsw adds two
// products in 16 bits and saturates, so it serves 4-bit codes only (15 * 128 * 2, eight times, is within 16 bits);
// codes of 8 bits are widened, and vpmaddwd adds even and odd columns.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd_avx2.h"

namespace tactus::kernels {
namespace {

struct DotsAvx2 {
  using Int = __m256i;
  static constexpr int kWidth = 8;
  static constexpr int kTokens = 2, kNibbleTokens = 2;
  static constexpr int64_t kPartColumns = 0;
  static constexpr bool kPreparesX = true;
  static constexpr int64_t kXBytes = 8;
  static constexpr int32_t kCodeOffset = 0;
  static constexpr bool kOwnTile = false;
  struct Codes {
    __m256i even, odd;
  };
  struct X {
    __m256i even, odd;
  };
  static __m256i LoadBytes(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static void StoreBytes(std::byte* p, __m256i v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  static __m256i Low(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(0x0f)); }
  static __m256i High(__m256i v) { return Low(_mm256_srli_epi16(v, 4)); }
  static Codes Prepare(__m256i v) { return {_mm256_and_si256(v, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(v, 8)}; }
  // Of every four values the first and third, then the second and fourth, as 16 bits.
  static void PrepareX(const std::byte* q, int64_t columns, std::byte* to) {
    for (int64_t c = 0; c < columns; c += 16, to += 32) {
      const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q + c)));
      const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6,
                                             7, 8, 9, 12, 13, 10, 11, 14, 15);
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(wide, order));
    }
  }
  static __m256i Spread4(const std::byte* p) {
    int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
  }
  static X LoadX(const std::byte* p) { return {Spread4(p), Spread4(p + 4)}; }
  static Int Dot(Int sum, const Codes& w, const X& x) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w.even, x.even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w.odd, x.odd));
  }
  static Int Add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int LoadInt(const int32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static void StoreInt(int32_t* p, Int v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  static Int Spread(int32_t v) { return _mm256_set1_epi32(v); }
  static Simd::F ToFloat(Int v) { return _mm256_cvtepi32_ps(v); }
  static Simd::F MulAdd(Simd::F a, Simd::F b, Simd::F c) { return _mm256_fmadd_ps(a, b, c); }
  static Simd::F FirstBf16(__m256i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
  static Simd::F SecondBf16(__m256i v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

struct NibbleDotsAvx2 : DotsAvx2 {
  static constexpr int64_t kPartColumns = 32;  // sums of 16 bits
  static constexpr bool kPreparesX = false;
  static constexpr int64_t kXBytes = 4;
  using Part = __m256i;
  using Codes = __m256i;
  using X = __m256i;
  static Codes Prepare(__m256i v) { return v; }
  static X LoadX(const std::byte* p) { return Spread4(p); }
  static Part ZeroPart() { return _mm256_setzero_si256(); }
  static Part Dot(Part sum, const Codes& w, const X& x) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x)); }
  static Int Widen(Part sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};

}  // namespace
}  // namespace tactus::kernels
