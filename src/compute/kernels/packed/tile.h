// Multiplies a panel of integer codes, written once over simd/simd.h and a class D of integer dot products; every
// instruction set has its own (dots.h).
//
// A panel is read in chunks of one token block that stay in the L1 cache while all tokens use them, in tiles of up to
// D::kRows rows of tokens by D::VectorsOf vectors of weight rows; every weight is read from memory once. Codes are
// widened once per chunk when several tiles use them. Between chunks a tile's y is in PanelSums::sums.
//
// D, with vectors of D::kWidth lanes of 32 bits (a lane: kGroupColumns columns of one weight row):
//   Codes, Prepare(bytes)        a lane's codes, prepared once for all rows of a tile
//   Low(bytes), High(bytes)      nibbles
//   kRows, VectorsOf(rows)       the largest tile, and the width of one: sums should fit the registers
//   kOpenedRows                  from this number of rows on, codes are widened once per chunk; by measurement
//   kMerged                      values have 16 bits; else the upper bytes of wide groups are separate (AddWide)
//   PrepareX, kXBytes, LoadX     a row's values in D's order; bytes per group; one group's values in every lane
//   AddUpper                     kMerged: adds 256 times a wide group's upper bytes to its four values in D's order
//   Int, Dot, Add, ShiftLeft     exact sums in 32 bits; or with kPartColumns > 0, a divisor of 32: Dot of kPartColumns
//   Part, Widen, WidenUpper      columns into a Part, whose lanes are then widened and added; times 256
//   kVectorTerms, Terms          FillTerms in vectors: sums of kSums neighbours, and their start and total
//   HasLoop(rows), Loop          D's own loop, which adds the products of columns with codes at [w, end) to sums
//   HasPass(rows), Pass          D's own code for all blocks of a chunk, from bytes or opened codes without zeros:
//                                Pass<kRows, BlockScales, groups per block>(BlockPass)
//   kPassesZeros                 Pass multiplies zero points too
//   kHasRowPass, RowPass         the same for one row of tokens and a whole panel of 4-bit codes: RowPass(TileRun)
//   kOpensZeros, Zeroed          OpenCodes subtracts zero points: 4 * code + (kZeroedCentre - z)
//   kCodeOffset                  subtracted from a code by Prepare
//   kOwnTile, DotTile            D's own code for a block's sums:
//                                DotTile<kU4, kRows>(codes, x, x_stride, columns, start, sums)
//   kOpened                      result of OpenCodes: kNot (8-bit codes unchanged, 4-bit codes in bytes),
//                                kWide (both in D::Open's two vectors of v)
//   PackZeros, PackSum, MulZero  MulZero(a panel's zero points after PackZeros, PackSum(s)) = z * s
//   ToFloat, MulAdd              of Int to Simd::F; a * b + c rounded once
//   Spread, LoadInt              of Int
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/passes.h"
#include "compute/kernels/packed/tile_run.h"
#include "compute/kernels/simd/simd.h"

namespace tactus::compute {
namespace {

enum class Opened : uint8_t { kNot, kWide };

inline constexpr int64_t kStepColumns = 32;

template <class D>
inline constexpr int64_t kXStride = kChunkColumns / D::kGroupColumns * D::kXBytes;

// sums: in and out.
template <class D, bool kU4, int kRows, int kVectors, class Sum>
inline __attribute__((always_inline)) void DotColumns(const std::byte* codes, const std::byte* x, int64_t columns,
                                                      Sum (&sums)[kRows][kVectors]) {
  constexpr int64_t kStep = (kU4 ? 2 : 1) * D::kGroupColumns;
#pragma GCC unroll 1
  for (int64_t c = 0; c < columns; c += kStep, codes += kGroupBytes) {
#pragma GCC unroll 2
    for (int half = 0; half < (kU4 ? 2 : 1); ++half, x += D::kXBytes) {
      typename D::Codes ready[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto bytes = D::LoadBytes(codes + v * D::kWidth * 4);
        ready[v] = D::Prepare(!kU4 ? bytes : half == 0 ? D::Low(bytes) : D::High(bytes));
      }
#pragma GCC unroll 8
      for (int t = 0; t < kRows; ++t) {
        const typename D::X values = D::LoadX(x + t * kXStride<D>);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[t][v] = D::Dot(sums[t][v], ready[v], values);
      }
    }
  }
}

template <class D, bool kU4, int kRows, int kVectors>
inline __attribute__((always_inline)) void DotPart(const std::byte* codes, const std::byte* x, int64_t columns,
                                                   typename D::Part (&part)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) part[t][v] = D::ZeroPart();
  }
  DotColumns<D, kU4, kRows, kVectors>(codes, x, columns, part);
}

// Columns between two steps of `ahead`, and per part.
template <class D>
inline constexpr int64_t kEach = D::kPartColumns > 0 ? D::kPartColumns : kStepColumns;

// The sums of block b. kLong: it is longer than kEach.
template <class D, bool kU4, bool kLong, int kRows, int kVectors>
inline __attribute__((always_inline)) void DotBlock(const std::byte* codes, const std::byte* x, int64_t columns,
                                                    const TileTerms& terms, int64_t b, bool zeros, Ahead* ahead,
                                                    typename D::Int (&total)[kRows][kVectors]) {
  constexpr int64_t kCodeColumns = (kU4 ? 2 : 1) * D::kGroupColumns;
  const int64_t each = kLong ? kEach<D> : columns;
  const int64_t codes_each = each / kCodeColumns * kGroupBytes, x_each = each / D::kGroupColumns * D::kXBytes;
  ahead->Step();
  if constexpr (D::kPartColumns == 0) {
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const typename D::Int start = D::Spread(zeros ? 0 : terms.start[t][b]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) total[t][v] = start;
    }
    DotColumns<D, kU4, kRows, kVectors>(codes, x, each, total);
  } else {
    typename D::Part part[kRows][kVectors];
    DotPart<D, kU4, kRows, kVectors>(codes, x, each, part);
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const typename D::Int start = D::Spread(zeros ? 0 : terms.start[t][b]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) total[t][v] = D::Add(start, D::Widen(part[t][v]));
    }
  }
  if constexpr (!kLong) return;
#pragma GCC unroll 1
  for (int64_t c = each; c < columns; c += each) {
    codes += codes_each;
    x += x_each;
    ahead->Step();
    if constexpr (D::kPartColumns == 0) {
      DotColumns<D, kU4, kRows, kVectors>(codes, x, each, total);
    } else {
      typename D::Part part[kRows][kVectors];
      DotPart<D, kU4, kRows, kVectors>(codes, x, each, part);
#pragma GCC unroll 8
      for (int t = 0; t < kRows; ++t) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) total[t][v] = D::Add(total[t][v], D::Widen(part[t][v]));
      }
    }
  }
}

// Adds the upper bytes of wide groups to the sums of a block with codes at `codes`.
template <class D, bool kU4, int kRows, int kVectors>
inline __attribute__((always_inline)) void AddWide(const std::byte* codes, const WideGroup* wide, const TileRun& run,
                                                   typename D::Int (&total)[kRows][kVectors]) {
  constexpr int64_t kStep = kU4 ? 8 : 4;  // columns per kGroupBytes
  for (int64_t c = 0; c < run.weights->block; c += run.wide_columns, ++wide) {
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const WideGroup& group = wide[t * run.wide_stride];
      const std::byte* at = codes + (c + group.first) / kStep * kGroupBytes;
      const bool high = kU4 && group.first % 8 != 0;
      const typename D::X values = D::LoadX(reinterpret_cast<const std::byte*>(group.upper));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto bytes = D::LoadBytes(at + v * D::kWidth * 4);
        const typename D::Codes ready = D::Prepare(!kU4 ? bytes : high ? D::High(bytes) : D::Low(bytes));
        if constexpr (D::kPartColumns > 0) {
          total[t][v] = D::Add(total[t][v], D::WidenUpper(D::Dot(D::ZeroPart(), ready, values)));
        } else {
          total[t][v] = D::Add(total[t][v], D::template ShiftLeft<8>(D::Dot(D::Spread(0), ready, values)));
        }
      }
    }
  }
}

// The sums of block b by D's own loop. wide: the first row's first group of the block; null: none, or D::kMerged.
template <class D, bool kU4, int kRows, int kVectors>
inline __attribute__((always_inline)) void LoopBlock(const std::byte* codes, const std::byte* x, int64_t columns,
                                                     const TileRun& run, const WideGroup* wide, int64_t b, Ahead* ahead,
                                                     typename D::Int (&total)[kRows][kVectors]) {
  constexpr int64_t kCodeColumns = (kU4 ? 2 : 1) * D::kGroupColumns;
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t) {
    const typename D::Int start = D::Spread(run.weights->zeros != nullptr ? 0 : run.terms->start[t][b]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[t][v] = start;
  }
  if constexpr (!D::kMerged) {
    if (wide != nullptr) AddWide<D, kU4, kRows, kVectors>(codes, wide, run, total);
  }
  const int64_t each = D::kPartColumns > 0 && D::kPartColumns < columns ? D::kPartColumns : columns;
  ahead->Step();
#pragma GCC unroll 1
  for (int64_t c = 0; c < columns; c += each) {
    const std::byte* end = codes + each / kCodeColumns * kGroupBytes;
    D::template Loop<kU4, kRows>(codes, end, x, total);
    codes = end;
    x += each / D::kGroupColumns * D::kXBytes;
  }
}

// packed.h's arithmetic of block b after its sums. r: the tile's first weight row; y: [rows][rows of the tile].
template <class D, int kRows, int kVectors>
inline __attribute__((always_inline)) void FinishBlock(const TileRun& run, int64_t r, int64_t b,
                                                       typename D::Int (&sums)[kRows][kVectors], float* y) {
  constexpr int64_t kTileRows = kVectors * D::kWidth;
  const ChunkOfWeights& w = *run.weights;
  const int64_t at = b * kPanelRows + r;
  if (w.zeros != nullptr) {
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto shift = D::MulZero(D::LoadInt(w.zeros + at + v * D::kWidth), run.terms->start[k][b]);
        sums[k][v] = D::Add(D::template ShiftLeft<2>(sums[k][v]), shift);
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < kRows; ++k) {
    const Simd::F scale = Simd::Set1(run.terms->scale[k][b]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = y + k * kTileRows + v * D::kWidth;
      const Simd::F sum = D::ToFloat(sums[k][v]);
      const Simd::F next = w.scales == nullptr ? D::MulAdd(sum, scale, Simd::Load(to))
                                               : D::MulAdd(Simd::Mul(sum, scale),
                                                           Simd::Load(w.scales + at + v * D::kWidth), Simd::Load(to));
      Simd::Store(to, next);
    }
  }
  if (w.minima == nullptr) return;
  for (int k = 0; k < kRows; ++k) {
    const Simd::F total = Simd::Set1(run.terms->total[k][b]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = y + k * kTileRows + v * D::kWidth;
      Simd::Store(to, D::MulAdd(Simd::Load(w.minima + at + v * D::kWidth), total, Simd::Load(to)));
    }
  }
}

// Whole vectors: a vector that is read after a copy in smaller parts waits until they are in the cache.
template <int kRows, int64_t kTileRows>
inline __attribute__((always_inline)) void CopyRows(const float* from, int64_t from_each, float* to, int64_t to_each) {
#pragma GCC unroll 8
  for (int k = 0; k < kRows; ++k) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kTileRows; i += Simd::kWidth) {
      Simd::Store(to + k * to_each + i, Simd::Load(from + k * from_each + i));
    }
  }
}

template <class D, bool kU4, bool kLong, int kRows>
__attribute__((noinline)) void RunIntTile(const TileRun& run) {
  if constexpr (kU4 && kRows == 1 && D::kHasRowPass) return D::RowPass(run);
  if constexpr (!kU4 && D::HasPass(kRows)) {
    if (D::kPassesZeros || run.weights->zeros == nullptr) return RunPasses<D, kRows>(run);
  }
  constexpr int kVectors = D::VectorsOf(kRows);
  constexpr int64_t kTileRows = kVectors * D::kWidth;
  static_assert(kPanelRows % kTileRows == 0);
  const ChunkOfWeights& w = *run.weights;
  constexpr bool kHasLoop = D::HasLoop(kRows);
  const int64_t block_steps = kLong && !D::kOwnTile && !kHasLoop ? w.block / kEach<D> : 1;
  const int64_t steps = kPanelRows / kTileRows * w.blocks * block_steps;
  Ahead ahead = {run.ahead, (run.ahead_bytes / steps + 63) / 64 * 64};
  for (int64_t r = 0; r < kPanelRows; r += kTileRows) {
    alignas(64) float y[kRows * kTileRows];
    CopyRows<kRows, kTileRows>(run.y + r, kPanelRows, y, kTileRows);
    const std::byte *codes = w.codes + r * 4, *x = run.x;
    const WideGroup* wide = run.wide;
    for (int64_t b = 0; b < w.blocks; ++b) {
      typename D::Int sums[kRows][kVectors];
      if constexpr (D::kOwnTile) {
        ahead.Step();
        alignas(64) int32_t out[kRows * kTileRows];
        int32_t start[kRows];
        for (int i = 0; i < kRows; ++i) start[i] = w.zeros != nullptr ? 0 : run.terms->start[i][b];
        D::template DotTile<kU4, kRows>(codes, x, kXStride<D>, w.block, start, out);
        for (int i = 0; i < kRows; ++i) {
          for (int v = 0; v < kVectors; ++v) sums[i][v] = D::LoadInt(out + i * kTileRows + v * D::kWidth);
        }
      } else if constexpr (kHasLoop) {
        LoopBlock<D, kU4, kRows, kVectors>(codes, x, w.block, run, wide, b, &ahead, sums);
      } else {
        DotBlock<D, kU4, kLong, kRows, kVectors>(codes, x, w.block, *run.terms, b, w.zeros != nullptr, &ahead, sums);
      }
      if constexpr (!D::kMerged) {
        if (wide != nullptr) {
          if constexpr (!kHasLoop) AddWide<D, kU4, kRows, kVectors>(codes, wide, run, sums);
          wide += w.block / run.wide_columns;
        }
      }
      FinishBlock<D, kRows, kVectors>(run, r, b, sums, y);
      codes += w.codes_each;
      x += w.block / D::kGroupColumns * D::kXBytes;
    }
    CopyRows<kRows, kTileRows>(y, kTileRows, run.y + r, kPanelRows);
  }
}

}  // namespace
}  // namespace tactus::compute
