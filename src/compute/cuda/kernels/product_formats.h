// The formats of codes that products read (quantized.h has their layouts in memory).
#pragma once

#include <cstddef>

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/product.h"

namespace tactus::compute::cuda {

// The column, within a step, of a lane's value i of 16.
template <int kRun>
TACTUS_DEVICE int ColumnOf(int share, int i) {
  return i / kRun * (4 * kRun) + share * kRun + i % kRun;
}

template <class T>
constexpr bool kIsBf16 = std::is_same_v<T, bf16>;

// A register with 16 bits in both halves.
template <uint32_t kHalf>
constexpr uint32_t kBoth = kHalf | kHalf << 16;
template <class T>
constexpr uint32_t kOnes = kBoth<(kIsBf16<T> ? 0x3f80 : 0x3c00)>;

TACTUS_DEVICE uint32_t WordOf(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The formats. kLoads: 16-byte loads per lane for the 16 rows and 64 columns of a step, the first half of them (of
// kInt4: of the words) for the lane's first row. kRun: successive columns that a lane holds
// (product_step.h). kUnit: columns that are added before a scale is
// applied; 0: no scales within a row. Pair: values 2 j and 2 j + 1 of the lane's first (half 0) or second row. kHigh
// and kAdd (kAddWithOffsets where there are offsets) reach Pair as `high` and `add`.
struct PlainCodes {
  static constexpr bool kPacked = false;
  static constexpr int kUnit = 0;
  static constexpr uint32_t kHigh = 0, kAdd = 0, kAddWithOffsets = 0;
};
template <class T>
struct RealCodes : PlainCodes {
  static constexpr int kLoads = 4, kRun = 8, kBytes = 2;  // kBytes: of a code
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], uint32_t /*high*/, uint32_t /*add*/, int half, int j) {
    return WordOf(in[2 * half + j / 4], j % 4);
  }
};

// A byte's sign and 7 other bits are those of a small bf16 or f16 number with too low an exponent.
template <class T>
struct Fp8Codes : PlainCodes {
  static constexpr int kLoads = 2, kRun = 16, kBytes = 1;
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], uint32_t /*high*/, uint32_t /*add*/, int half, int j) {
    constexpr uint32_t kUp = kIsBf16<T> ? kBoth<0x7b80> : kBoth<0x5c00>;  // 2^120, 2^8
    const uint32_t code = __byte_perm(WordOf(in[half], j / 2), 0, j % 2 == 0 ? 0x1404 : 0x3424);
    const uint32_t digits = (code & kBoth<0x7f00>) >> (kIsBf16<T> ? 4 : 1);
    return MulPair<T>(digits | (code & kBoth<0x8000>), kUp);
  }
};

// Bytes are code + 128. A word's bytes are values 0, 2, 1, 3, so that a mask takes a pair out.
template <class T, int kColumns>
struct Int8Codes {
  static constexpr int kLoads = 2, kRun = kColumns == 16 ? 4 : 8, kUnit = kColumns;
  static constexpr bool kPacked = true;
  static constexpr uint32_t kHigh = kIsBf16<T> ? kBoth<0x4300> : kBoth<0x6400>;  // 128 or 1024
  static constexpr uint32_t kAdd = kIsBf16<T> ? kBoth<0xc380> : kBoth<0xe480>;   // -256 or -1152
  static constexpr uint32_t kAddWithOffsets = kAdd;
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], uint32_t high, uint32_t add, int half, int j) {
    const uint32_t code = WordOf(in[half], j / 2) >> (j % 2 * 8);
    if constexpr (kIsBf16<T>) {
      // 128 + the low 7 bits, minus 128 where bit 7 is set, else minus 256: each of them is exact in bf16.
      return FmaPair<T>((code & kBoth<0x007f>) | high, kOnes<T>, (code & kBoth<0x0080>)^add);
    } else {
      return FmaPair<T>((code & kBoth<0x00ff>) | high, kOnes<T>, add);
    }
  }
};

// A word has 8 codes: p and p + 4 are values 2 p and 2 p + 1.
template <class T, int kColumns>
struct Int4Codes {
  static constexpr int kLoads = 1, kRun = kColumns == 16 ? 4 : 8, kUnit = kColumns;
  static constexpr bool kPacked = true;
  static constexpr uint32_t kHigh = kIsBf16<T> ? kBoth<0x4300> : kBoth<0x6400>;            // 128 or 1024
  static constexpr uint32_t kAddWithOffsets = kIsBf16<T> ? kBoth<0xc300> : kBoth<0xe400>;  // minus as much
  static constexpr uint32_t kAdd = kAddWithOffsets | kBoth<0x0008>;                        // and minus 8
  TACTUS_DEVICE static uint32_t Pair(const uint4 (&in)[kLoads], uint32_t high, uint32_t add, int half, int j) {
    const uint32_t code = WordOf(in[0], 2 * half + j / 4) >> (j % 4 * 4);
    return FmaPair<T>((code & kBoth<0x000f>) | high, kOnes<T>, add);
  }
};

// A step has a part for each of its scales.
template <class C>
constexpr bool kScaled = C::kUnit > 0;
template <class C>
constexpr int kParts = kScaled<C> ? kStep / C::kUnit : 1;
template <class C>
constexpr int kProducts = 4 / kParts<C>;  // instructions of a part
template <class C>
constexpr int kFactorBytes = kScaled<C> ? kParts<C> * kTileRows * 2 : 0;  // of a row tile's scales of a step

}  // namespace tactus::compute::cuda
