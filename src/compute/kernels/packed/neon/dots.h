// Integer dot products of Arm for packed/tile.h, each part compiled only in files that are compiled for its extension.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/portable/dots.h"

namespace tactus::compute {
namespace {

// Shared base: vectors, and the arithmetic after a block.
struct NeonBase {
  using Int = int32x4_t;
  using Codes = int8x16_t;
  using X = int8x16_t;
  static constexpr int kWidth = 4;
  static constexpr int kRows = 4;
  static constexpr int64_t kOpenedRows = 9;
  static constexpr int64_t kPartColumns = 0;
  static constexpr bool kMerged = false;
  static constexpr int64_t kGroupColumns = 4, kXBytes = 4;
  static constexpr Opened kOpened = Opened::kNot;
  static constexpr int VectorsOf(int) { return 4; }
  static constexpr bool kOwnTile = false;
  static constexpr bool kVectorTerms = false;
  static constexpr bool kOpensZeros = false;
  static constexpr bool HasLoop(int) { return false; }
  static constexpr bool HasPass(int) { return false; }
  static constexpr bool kHasRowPass = false;
  static uint8x16_t LoadBytes(const std::byte* p) { return vld1q_u8(reinterpret_cast<const uint8_t*>(p)); }
  static void StoreBytes(std::byte* p, uint8x16_t v) { vst1q_u8(reinterpret_cast<uint8_t*>(p), v); }
  static uint8x16_t Low(uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(0x0f)); }
  static uint8x16_t High(uint8x16_t v) { return vshrq_n_u8(v, 4); }
  static X LoadX(const std::byte* p) {
    int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
  }
  static Int Add(Int a, Int b) { return vaddq_s32(a, b); }
  template <int kBits>
  static Int ShiftLeft(Int v) {
    return vshlq_n_s32(v, kBits);
  }
  static void PackZeros(const uint8_t* zeros, int32_t* to) {
    for (int64_t i = 0; i < kPanelRows; ++i) to[i] = zeros[i];
  }
  static int32_t PackSum(int32_t sum) { return sum; }
  static Int MulZero(Int zeros, int32_t sum) { return vmulq_n_s32(zeros, sum); }
  static Int LoadInt(const int32_t* p) { return vld1q_s32(p); }
  static Int Spread(int32_t v) { return vdupq_n_s32(v); }
  static Simd::F ToFloat(Int v) { return (Simd::F)vcvtq_f32_s32(v); }
  static Simd::F MulAdd(Simd::F a, Simd::F b, Simd::F c) {
    return (Simd::F)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
  }
  static Simd::F FirstBf16(uint8x16_t v) { return (Simd::F)vshlq_n_u32(vreinterpretq_u32_u8(v), 16); }
  static Simd::F SecondBf16(uint8x16_t v) {
    return (Simd::F)vandq_u32(vreinterpretq_u32_u8(v), vdupq_n_u32(0xffff0000u));
  }
};

#if defined(__ARM_FEATURE_DOTPROD)
// sdot multiplies signed bytes: 128 is subtracted from 8-bit codes. 4-bit codes are valid signed bytes.
struct DotsDotprod : NeonBase {
  static constexpr int32_t kCodeOffset = 128;
  static Codes Prepare(uint8x16_t v) { return vreinterpretq_s8_u8(veorq_u8(v, vdupq_n_u8(0x80))); }
  static Int Dot(Int sum, Codes w, X x) { return vdotq_s32(sum, w, x); }
};
struct NibbleDotsDotprod : DotsDotprod {
  static constexpr int32_t kCodeOffset = 0;
  static Codes Prepare(uint8x16_t v) { return vreinterpretq_s8_u8(v); }
};
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
// usmmla multiplies two rows of 8 unsigned codes by two of 8 signed values: two weight rows by two tokens. Two groups
// of four columns of four weight rows, zipped, are two such pairs of rows. A single token uses usdot.
struct DotsI8mm : NeonBase {
  static constexpr int32_t kCodeOffset = 0;
  static constexpr bool kOwnTile = true;
  using Codes = uint8x16_t;
  static Codes Prepare(uint8x16_t v) { return v; }
  static Int Dot(Int sum, Codes w, X x) { return vusdotq_s32(sum, w, x); }

  template <bool kU4, int kRows>
  static void DotTile(const std::byte* codes, const std::byte* x, int64_t x_stride, int64_t columns,
                      const int32_t (&start)[kRows], int32_t* sums) {
    constexpr int kPairs = (kRows + 1) / 2, kVectors = 4;
    constexpr int64_t kBytesPer8 = kU4 ? 256 : 512;  // a panel's codes of 8 columns
    if constexpr (kRows == 1) {
      Int sum[kVectors];
      for (int v = 0; v < kVectors; ++v) sum[v] = vdupq_n_s32(start[0]);
      for (int64_t c = 0; c < columns; c += 8, codes += kBytesPer8) {
        const X first = LoadX(x + c), second = LoadX(x + c + 4);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          uint8x16_t w[2];
          Load8<kU4>(codes + 16 * v, w);
          sum[v] = vusdotq_s32(vusdotq_s32(sum[v], w[0], first), w[1], second);
        }
      }
      for (int v = 0; v < kVectors; ++v) vst1q_s32(sums + 4 * v, sum[v]);
      return;
    }
    // [pair of token rows][vector of four rows][its upper or lower two rows]: lanes (row, token), (row, token + 1),
    // (row + 1, token), ...
    Int sum[kPairs][kVectors][2];
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[p][v][0] = sum[p][v][1] = vdupq_n_s32(0);
    }
    for (int64_t c = 0; c < columns; c += 8, codes += kBytesPer8) {
      int8x16_t values[kPairs];
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) {
        const int second = 2 * p + 1 < kRows ? 2 * p + 1 : 2 * p;
        values[p] = vcombine_s8(vld1_s8(reinterpret_cast<const int8_t*>(x + 2 * p * x_stride + c)),
                                vld1_s8(reinterpret_cast<const int8_t*>(x + second * x_stride + c)));
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        uint8x16_t w[2];
        Load8<kU4>(codes + 16 * v, w);
        const uint32x4_t first = vreinterpretq_u32_u8(w[0]), second = vreinterpretq_u32_u8(w[1]);
        const uint8x16_t upper = vreinterpretq_u8_u32(vzip1q_u32(first, second));
        const uint8x16_t lower = vreinterpretq_u8_u32(vzip2q_u32(first, second));
#pragma GCC unroll 2
        for (int p = 0; p < kPairs; ++p) {
          sum[p][v][0] = vusmmlaq_s32(sum[p][v][0], upper, values[p]);
          sum[p][v][1] = vusmmlaq_s32(sum[p][v][1], lower, values[p]);
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kRows; ++t) {
      const Int first = vdupq_n_s32(start[t]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Int a = sum[t / 2][v][0], b = sum[t / 2][v][1];
        vst1q_s32(sums + (t * kVectors + v) * 4, vaddq_s32(first, t % 2 == 0 ? vuzp1q_s32(a, b) : vuzp2q_s32(a, b)));
      }
    }
  }

 private:
  // Two groups of four columns of four rows.
  template <bool kU4>
  static void Load8(const std::byte* p, uint8x16_t (&w)[2]) {
    const uint8x16_t v = LoadBytes(p);
    w[0] = kU4 ? Low(v) : v;
    w[1] = kU4 ? High(v) : LoadBytes(p + 256);
  }
};
#endif

}  // namespace
}  // namespace tactus::compute
