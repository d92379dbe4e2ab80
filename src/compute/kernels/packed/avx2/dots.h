// Three forms of AVX2's integer dot products for packed/tile.h:
//   ByteDots    codes of few bits by 8-bit values: vpmaddubsw multiplies and adds neighbours in 16 bits, with
//               saturation, so only as many columns are added there as cannot reach it, then widened once to 32 bits
//   WideDots    any 8-bit code by values of 8 or 16 bits: vpmaddwd, even and odd columns separately
//   OpenedDots  the same with codes that were widened for many tiles; two columns are a group
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/avx2/block_pass.h"
#include "compute/kernels/packed/avx2/byte_pass.h"
#include "compute/kernels/packed/avx2/loops.h"
#include "compute/kernels/packed/avx2/row_pass.h"
#include "compute/kernels/packed/tile.h"
#include "compute/kernels/simd/avx2.h"

namespace tactus::compute {
namespace {

struct BaseAvx2 {
  using Int = __m256i;
  static constexpr int kWidth = 8;
  static constexpr int kRows = 6;
  static constexpr int64_t kOpenedRows = 13;
  static constexpr int64_t kPartColumns = 0;
  static constexpr int32_t kCodeOffset = 0;
  static constexpr bool kOwnTile = false;
  static constexpr bool kVectorTerms = true;
  static constexpr bool kOpensZeros = false;
  static constexpr bool HasLoop(int rows) { return rows >= 4; }
  static constexpr bool HasPass(int) { return false; }
  static constexpr bool kPassesZeros = false, kHasRowPass = false;
  // Sums, two vectors of codes and a value: 15 of 16 registers.
  static constexpr int VectorsOf(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }
  static __m256i LoadBytes(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static void StoreBytes(std::byte* p, __m256i v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  static __m256i Low(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(0x0f)); }
  static __m256i High(__m256i v) { return Low(_mm256_srli_epi16(v, 4)); }
  static __m256i Spread4(const std::byte* p) {
    int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
  }
  static Int Add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  template <int kBits>
  static Int ShiftLeft(Int v) {
    return _mm256_slli_epi32(v, kBits);
  }
  static Int LoadInt(const int32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static Int Spread(int32_t v) { return _mm256_set1_epi32(v); }
  static Simd::F ToFloat(Int v) { return _mm256_cvtepi32_ps(v); }
  static Simd::F MulAdd(Simd::F a, Simd::F b, Simd::F c) { return _mm256_fmadd_ps(a, b, c); }
  // A sum of q over a block is within 22 bits: as 256 * (16 bits) + 8 bits, one vpmaddwd multiplies it with (256 * z,
  // z).
  static void PackZeros(const uint8_t* zeros, int32_t* to) {
    for (int64_t i = 0; i < kPanelRows; i += kWidth) {
      const __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros + i)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + i), _mm256_or_si256(z, _mm256_slli_epi32(z, 24)));
    }
  }
  static int32_t PackSum(int32_t sum) {
    return (sum & 0xff) | static_cast<int32_t>(static_cast<uint32_t>(sum >> 8) << 16);
  }
  // Writes eight of each, of which 8 / kSums are valid.
  template <int kSums>
  static void Terms(const int32_t* from, int32_t factor, bool zeros, int32_t* start, float* total) {
    __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (kSums >= 2) v = _mm256_permute4x64_epi64(_mm256_hadd_epi32(v, v), 0xd8);
    if constexpr (kSums >= 4) v = _mm256_hadd_epi32(v, v);
    if constexpr (kSums >= 8) v = _mm256_hadd_epi32(v, v);
    _mm256_storeu_ps(total, _mm256_cvtepi32_ps(v));
    if (zeros) {  // PackSum(-v)
      const __m256i n = _mm256_sub_epi32(_mm256_setzero_si256(), v);
      v = _mm256_or_si256(_mm256_and_si256(n, Spread(0xff)), _mm256_slli_epi32(_mm256_srai_epi32(n, 8), 16));
    } else {
      v = _mm256_mullo_epi32(v, Spread(factor));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(start), v);
  }
  static Int MulZero(Int zeros, int32_t sum) { return _mm256_madd_epi16(zeros, Spread(sum)); }
  // Add the products of columns with weights at [w, end) to y, [kTokens][64].
  template <int kTokens>
  static void LoopBf16(const std::byte* w, const std::byte* end, const float* x, float* y) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    Bf16Loop::Run<kTokens>(w, end, reinterpret_cast<const std::byte*>(x), mask, y);
  }
  template <int kTokens>
  static void LoopF32(const std::byte* w, const std::byte* end, const float* x, float* y) {
    FloatLoop::Run<kTokens>(w, end, reinterpret_cast<const std::byte*>(x), _mm256_setzero_si256(), y);
  }
  static Simd::F FirstBf16(__m256i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
  static Simd::F SecondBf16(__m256i v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

struct WideDotsAvx2 : BaseAvx2 {
  static constexpr int64_t kOpenedRows = 7;
  static constexpr bool kMerged = true;
  static constexpr int64_t kGroupColumns = 4, kXBytes = 8;
  static constexpr Opened kOpened = Opened::kWide;
  struct Codes {
    __m256i even, odd;
  };
  struct X {
    __m256i even, odd;
  };
  static Codes Prepare(__m256i v) { return {_mm256_and_si256(v, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(v, 8)}; }
  // Orders every four values as first, third, second, fourth, as 16 bits.
  static void PrepareX(const std::byte* values, std::byte* to) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7,
                                           8, 9, 12, 13, 10, 11, 14, 15);
    for (int64_t c = 0; c < kChunkColumns; c += 16, to += 32) {
      const __m256i q = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values + c)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(q, order));
    }
  }
  static void AddUpper(const WideGroup& group, std::byte* four) {
    int32_t upper;
    __builtin_memcpy(&upper, group.upper, sizeof upper);
    const __m128i words = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(upper)), 8);
    auto* at = reinterpret_cast<__m128i*>(four);
    _mm_storel_epi64(at, _mm_add_epi16(_mm_loadl_epi64(at), _mm_shufflelo_epi16(words, 0xd8)));
  }
  template <bool kU4, int kRows>
  static void Loop(const std::byte* w, const std::byte* end, const std::byte* x, Int (&sums)[kRows][2]) {
    if constexpr (kU4) {
      SplitNibbleLoop::Run<kRows>(w, end, x, _mm256_set1_epi16(0xf), sums);
    } else {
      SplitByteLoop::Run<kRows>(w, end, x, _mm256_set1_epi16(0xff), sums);
    }
  }
  static X LoadX(const std::byte* p) { return {Spread4(p), Spread4(p + 4)}; }
  static Int Dot(Int sum, const Codes& w, const X& x) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w.even, x.even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w.odd, x.odd));
  }
  // (codes << kShift) - centre, even and odd columns.
  template <int kShift>
  static void Open(__m256i codes, __m256i centre, std::byte* even, std::byte* odd) {
    const Codes wide = Prepare(codes);
    StoreBytes(even, _mm256_sub_epi16(_mm256_slli_epi16(wide.even, kShift), centre));
    StoreBytes(odd, _mm256_sub_epi16(_mm256_slli_epi16(wide.odd, kShift), centre));
  }
};

struct OpenedDotsAvx2 : WideDotsAvx2 {
  static constexpr int64_t kGroupColumns = 2, kXBytes = 4;
  using Codes = __m256i;
  using X = __m256i;
  static Codes Prepare(__m256i v) { return v; }
  static X LoadX(const std::byte* p) { return Spread4(p); }
  static Int Dot(Int sum, Codes w, X x) { return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x)); }
  static constexpr bool HasPass(int rows) { return rows >= 4; }
  template <int kTokens, BlockScales kScales, int kGroups>
  static void Pass(const BlockPass& pass) {
    WordPass::Run<kTokens, kScales, kGroups>(pass);
  }
  template <bool kU4, int kRows>
  static void Loop(const std::byte* w, const std::byte* end, const std::byte* x, Int (&sums)[kRows][2]) {
    WordLoop::Run<kRows>(w, end, x, _mm256_setzero_si256(), sums);
  }
};

// kBits: most bits of a code.
template <int kBits>
struct ByteDotsAvx2 : BaseAvx2 {
  static constexpr int64_t kOpenedRows = 4;
  static constexpr bool kMerged = false;
  static constexpr int64_t kGroupColumns = 4, kXBytes = 4;
  static constexpr Opened kOpened = Opened::kNot;
  static constexpr int64_t kPartColumns = 32 >> (kBits - 4);
  static_assert(kPartColumns / kGroupColumns * 2 * 128 * ((1 << kBits) - 1) < 32768);
  using Codes = __m256i;
  using X = __m256i;
  using Part = __m256i;
  static Codes Prepare(__m256i v) { return v; }
  static X LoadX(const std::byte* p) { return Spread4(p); }
  static constexpr bool HasLoop(int) { return false; }
  static constexpr bool HasPass(int rows) { return rows >= 4; }
  static constexpr bool kPassesZeros = true, kHasRowPass = kBits == 4;
  static void RowPass(const TileRun& run) { NibbleRowPass::Run(run); }
  template <int kTokens, BlockScales kScales, int kGroups>
  static void Pass(const BlockPass& pass) {
    if constexpr (kScales != BlockScales::kNone) BytePass<kPartColumns>::template Run<kTokens, kScales, kGroups>(pass);
  }
  static Part ZeroPart() { return _mm256_setzero_si256(); }
  static Part Dot(Part sum, Codes w, X x) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x)); }
  static Int Widen(Part sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
  static Int WidenUpper(Part sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(256)); }
};

}  // namespace
}  // namespace tactus::compute
