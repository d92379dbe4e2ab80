// Integer dot products for packed/tile.h in compiler vector types of 16 bytes, with SSE2's and NEON's widening products
// where available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "compute/kernels/packed/tile.h"
#include "compute/kernels/simd/portable.h"

namespace tactus::compute {
namespace {

struct DotsPortable {
  typedef uint32_t U32 __attribute__((vector_size(16)));
  typedef uint16_t U16 __attribute__((vector_size(16)));
  typedef int32_t Int __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static constexpr int kRows = 4;
  static constexpr int64_t kOpenedRows = 9;
  static constexpr int64_t kPartColumns = 0;
  static constexpr bool kMerged = true;
  static constexpr int64_t kGroupColumns = 4, kXBytes = 8;
  static constexpr Opened kOpened = Opened::kWide;
  static constexpr int32_t kCodeOffset = 0;
  static constexpr bool kOwnTile = false;
  static constexpr bool kVectorTerms = false;
  static constexpr bool kOpensZeros = false;
  static constexpr bool HasLoop(int) { return false; }
  static constexpr bool HasPass(int) { return false; }
  static constexpr bool kHasRowPass = false;
  static constexpr int VectorsOf(int rows) { return rows <= 2 ? 4 : 2; }
  // Two 16-bit numbers per lane.
  struct Codes {
    U32 even, odd;
  };
  struct X {
    U32 even, odd;
  };
  static U32 LoadBytes(const std::byte* p) {
    U32 v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void StoreBytes(std::byte* p, U32 v) { std::memcpy(p, &v, sizeof v); }
  static U32 Low(U32 v) { return v & 0x0f0f0f0fu; }
  static U32 High(U32 v) { return (v >> 4) & 0x0f0f0f0fu; }
  static Codes Prepare(U32 v) { return {v & 0x00ff00ffu, (v >> 8) & 0x00ff00ffu}; }
  // Orders every four values as first, third, second, fourth, as 16 bits.
  static void PrepareX(const std::byte* values, std::byte* to) {
    for (int64_t c = 0; c < kChunkColumns; c += 4, to += 8) {
      const auto at = [values, c](int i) { return static_cast<int16_t>(static_cast<int8_t>(values[c + i])); };
      const int16_t four[4] = {at(0), at(2), at(1), at(3)};
      std::memcpy(to, four, sizeof four);
    }
  }
  static void AddUpper(const WideGroup& group, std::byte* four) {
    int16_t values[kWideColumns];
    std::memcpy(values, four, sizeof values);
    constexpr int kOrder[kWideColumns] = {0, 2, 1, 3};
    for (int i = 0; i < kWideColumns; ++i) values[i] = static_cast<int16_t>(values[i] + 256 * group.upper[kOrder[i]]);
    std::memcpy(four, values, sizeof values);
  }
  static X LoadX(const std::byte* p) {
    uint32_t two[2];
    std::memcpy(two, p, sizeof two);
    return {U32{two[0], two[0], two[0], two[0]}, U32{two[1], two[1], two[1], two[1]}};
  }
  static Int DotPairs(U32 a, U32 b) {
#if defined(__SSE2__)
    return (Int)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__ARM_NEON)
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    return (Int)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
#else
    const Int x = (Int)a, y = (Int)b;
    return (x >> 16) * (y >> 16) + ((Int)(a << 16) >> 16) * ((Int)(b << 16) >> 16);
#endif
  }
  static Int Dot(Int sum, const Codes& w, const X& x) {
    return Add(sum, Add(DotPairs(w.even, x.even), DotPairs(w.odd, x.odd)));
  }
  // (codes << kShift) - centre, even and odd columns, 16 bits each.
  template <int kShift>
  static void Open(U32 codes, U32 centre, std::byte* even, std::byte* odd) {
    const Codes wide = Prepare(codes);
    StoreBytes(even, (U32)(((U16)wide.even << kShift) - (U16)centre));
    StoreBytes(odd, (U32)(((U16)wide.odd << kShift) - (U16)centre));
  }
  static Int Add(Int a, Int b) { return (Int)((U32)a + (U32)b); }
  template <int kBits>
  static Int ShiftLeft(Int v) {
    return (Int)((U32)v << kBits);
  }
  static void PackZeros(const uint8_t* zeros, int32_t* to) {
    for (int64_t i = 0; i < kPanelRows; ++i) to[i] = zeros[i];
  }
  static int32_t PackSum(int32_t sum) { return sum; }
  static Int MulZero(Int zeros, int32_t sum) { return zeros * Spread(sum); }
  static Int LoadInt(const int32_t* p) {
    Int v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static Int Spread(int32_t v) { return Int{v, v, v, v}; }
  static Simd::F ToFloat(Int v) { return __builtin_convertvector(v, Simd::F); }

  // a * b + c rounded once, on machines without an instruction for it. The product is exact in a double; the sum is
  // rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding
  // to odd", 2008), so that the rounding to f32 resolves ties correctly.
  static float Fused(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    const double product = static_cast<double>(a) * b, addend = c;
    const double sum = product + addend, back = sum - product;
    const double error = (product - (sum - back)) + (addend - back);
    uint64_t bits, error_bits;
    std::memcpy(&bits, &sum, sizeof bits);
    std::memcpy(&error_bits, &error, sizeof error_bits);
    const uint64_t magnitude = error_bits & 0x7fffffffffffffffu, inexact = (magnitude | (0 - magnitude)) >> 63;
    const uint64_t inward = (bits ^ error_bits) >> 63;  // the error has the other sign
    const uint64_t step = inexact & ~bits & 1;
    bits += (step ^ (0 - (inward & step))) + (inward & step);
    double odd;
    std::memcpy(&odd, &bits, sizeof odd);
    return static_cast<float>(odd);
#endif
  }
  static Simd::F MulAdd(Simd::F a, Simd::F b, Simd::F c) {
    return Simd::F{Fused(a[0], b[0], c[0]), Fused(a[1], b[1], c[1]), Fused(a[2], b[2], c[2]), Fused(a[3], b[3], c[3])};
  }
  static Simd::F AsFloats(U32 v) {
    Simd::F f;
    std::memcpy(&f, &v, sizeof f);
    return f;
  }
  static Simd::F FirstBf16(U32 v) { return AsFloats(v << 16); }
  static Simd::F SecondBf16(U32 v) { return AsFloats(v & 0xffff0000u); }
};

// Codes that were widened: two columns are a group.
struct OpenedDotsPortable : DotsPortable {
  static constexpr int64_t kGroupColumns = 2, kXBytes = 4;
  using Codes = U32;
  using X = U32;
  static Codes Prepare(U32 v) { return v; }
  static X LoadX(const std::byte* p) {
    uint32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return U32{pair, pair, pair, pair};
  }
  static Int Dot(Int sum, Codes w, X x) { return Add(sum, DotPairs(w, x)); }
};

}  // namespace
}  // namespace tactus::compute
