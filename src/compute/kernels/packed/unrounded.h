// Multiplies a panel of any weights by f32 tokens, written once over simd/simd.h. A sum is one chain of multiply-adds,
// columns ascending, for any tile.
//
// f32 weights are read in place. All others are converted to f32 once per chunk, for all tiles; f16 for a few tokens is
// widened on load. D defines the size of a tile, and a loop where compilers do not keep a tile's sums in registers
// (HasLoop, LoopF32: avx2/dots.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/kernels/packed/scales.h"
#include "compute/kernels/packed/tile.h"
#include "compute/kernels/simd/simd.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kFloatColumns = 64;  // per chunk; for integers a token block, so that blocks are whole
inline constexpr int64_t kFloatXStride = kTokenBlock;  // between rows of tokens prepared for D's loop
inline constexpr int64_t kFloatStep = 8;               // columns between two prefetch steps

struct WholeFloats {
  static constexpr int64_t kBytes = 4;
  static Simd::F Load(const std::byte* p) { return Simd::Load(reinterpret_cast<const float*>(p)); }
};
struct HalfFloats {
  static constexpr int64_t kBytes = 2;
  static Simd::F Load(const std::byte* p) { return Simd::LoadF16(p); }
};

// One column of the tile. sum: in and out.
template <class Floats, int kTokens, int kVectors>
inline __attribute__((always_inline)) void AddColumn(const std::byte* at, const float* x0, const float* x3,
                                                     int64_t x_stride, Simd::F (&sum)[kTokens][kVectors]) {
  Simd::F f[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) f[v] = Floats::Load(at + v * Simd::kWidth * Floats::kBytes);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    // Not (t < 3 ? x0 : x3)[...]: with -fsanitize=undefined GCC 12 reads a wrong address for the rows of x3.
    const float* x = t < 3 ? x0 + t * x_stride : x3 + (t - 3) * x_stride;
    const Simd::F value = Simd::Set1(*x);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[t][v] = Simd::MulAdd(f[v], value, sum[t][v]);
  }
}

struct FloatTile {
  const std::byte* w;  // [columns][64]
  int64_t columns;
  const float* x;  // [tokens], rows x_stride apart
  int64_t x_stride;
  float* y;  // [tokens][64]
  const std::byte* ahead;
  int64_t ahead_bytes;
};

template <class D, class Floats, int kTokens>
__attribute__((noinline)) void RunFloatTile(FloatTile tile) {
  constexpr int kVectors = D::VectorsOf(kTokens);
  constexpr int64_t kTileRows = kVectors * Simd::kWidth, kColumnBytes = kPanelRows * Floats::kBytes;
  constexpr bool kHasLoop = D::HasLoop(kTokens) && Floats::kBytes == 4;
  const int64_t step = kHasLoop ? tile.columns : kFloatStep;
  const int64_t steps = kPanelRows / kTileRows * ((tile.columns + step - 1) / step);
  Ahead fetch = {tile.ahead, (tile.ahead_bytes / steps + 63) / 64 * 64};
  for (int64_t r = 0; r < kPanelRows; r += kTileRows) {
    const std::byte* at = tile.w + r * Floats::kBytes;
    if constexpr (kHasLoop) {
      fetch.Step();
      D::template LoopF32<kTokens>(at, at + tile.columns * kColumnBytes, tile.x, tile.y + r);
      continue;
    }
    Simd::F sum[kTokens][kVectors];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[t][v] = Simd::Load(tile.y + t * kPanelRows + r + v * Simd::kWidth);
    }
    const float *x0 = tile.x, *x3 = tile.x + 3 * tile.x_stride;
    int64_t c = 0;
    for (; c + kFloatStep <= tile.columns; c += kFloatStep, at += kFloatStep * kColumnBytes) {
      fetch.Step();
#pragma GCC unroll 8
      for (int64_t i = 0; i < kFloatStep; ++i) {
        AddColumn<Floats>(at + i * kColumnBytes, x0 + i, x3 + i, tile.x_stride, sum);
      }
      x0 += kFloatStep;
      x3 += kFloatStep;
    }
    for (; c < tile.columns; ++c, at += kColumnBytes, ++x0, ++x3) {
      AddColumn<Floats>(at, x0, x3, tile.x_stride, sum);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) Simd::Store(tile.y + t * kPanelRows + r + v * Simd::kWidth, sum[t][v]);
    }
  }
}

template <class D, class Floats>
void RunFloatTileOf(int64_t tokens, const FloatTile& tile) {
  using Run = void (*)(FloatTile);
  constexpr int kFive = D::kRows < 5 ? 4 : 5, kSix = D::kRows < 6 ? 4 : 6;
  constexpr Run kTiles[] = {RunFloatTile<D, Floats, 1>, RunFloatTile<D, Floats, 2>,     RunFloatTile<D, Floats, 3>,
                            RunFloatTile<D, Floats, 4>, RunFloatTile<D, Floats, kFive>, RunFloatTile<D, Floats, kSix>};
  kTiles[tokens - 1](tile);
}

// A group of each of 64 rows (4 columns of 8-bit codes or 8 of 4-bit codes) as f32: times * code - centre, by scale,
// plus minimum where there are minima.
template <bool kNibbles, int32_t kTimes, bool kMinimum>
inline void OpenGroup(const uint32_t* __restrict words, const int32_t* __restrict centre, const float* __restrict scale,
                      const float* __restrict minimum, float* __restrict to) {
  for (int64_t r = 0; r < kPanelRows; ++r) {
    const uint32_t word = words[r];
#pragma GCC unroll 8
    for (int i = 0; i < (kNibbles ? 8 : 4); ++i) {
      const uint32_t code = kNibbles ? (word >> (8 * (i % 4) + 4 * (i / 4))) & 0xf : (word >> (8 * i)) & 0xff;
      const float value = scale[r] * static_cast<float>(kTimes * static_cast<int32_t>(code) - centre[r]);
      to[i * kPanelRows + r] = kMinimum ? value + minimum[r] : value;
    }
  }
}

// The blocks with columns [first, first + count), at most one token block: [columns][64].
inline void OpenIntegers(const PackedMatrix& w, const std::byte* panel, int64_t first, int64_t count, float* to) {
  const bool nibbles = w.code == PackedCode::kU4;
  const int64_t block = w.block > 0 ? w.block : kTokenBlock, blocks = (count + block - 1) / block;
  const int64_t code_bytes = block * kPanelRows / (nibbles ? 2 : 1);
  const int64_t block_bytes = w.block > 0 ? w.block_bytes() : code_bytes;
  const std::byte* at = panel + first / block * block_bytes;
  alignas(64) float scales[kTokenBlock / 16 * kPanelRows], minima[kTokenBlock / 16 * kPanelRows];
  alignas(64) int32_t centre[kPanelRows];
  if (w.block > 0) {
    LoadScales(w, at + code_bytes, blocks, 0, scales);
    if (w.has_minimum) LoadScales(w, at + code_bytes, blocks, 1, minima);
  } else {
    std::memcpy(scales, panel + w.panel_bytes - kPanelRows * 4, kPanelRows * 4);
  }
  for (int64_t b = 0; b < blocks; ++b, at += block_bytes) {
    const auto* zeros = reinterpret_cast<const uint8_t*>(at + code_bytes + kPanelRows * 2);
    for (int64_t r = 0; r < kPanelRows; ++r) centre[r] = w.has_zeros ? zeros[r] : w.zero;
    const auto* words = reinterpret_cast<const uint32_t*>(at);
    const float *scale = scales + b * kPanelRows, *minimum = minima + b * kPanelRows;
    const auto open = w.has_zeros     ? OpenGroup<true, 4, false>
                      : !nibbles      ? (w.has_minimum ? OpenGroup<false, 1, true> : OpenGroup<false, 1, false>)
                      : w.has_minimum ? OpenGroup<true, 1, true>
                                      : OpenGroup<true, 1, false>;
    const int64_t columns = nibbles ? 8 : 4;
    for (int64_t c = 0; c < block; c += columns, words += kPanelRows) {
      open(words, centre, scale, minimum, to + (b * block + c) * kPanelRows);
    }
  }
}

// Columns [first, first + count) of a panel that is not f32.
inline void OpenFloats(const PackedMatrix& w, const std::byte* panel, int64_t first, int64_t count, float* to) {
  if (w.code == PackedCode::kF16) return WidenHalves(panel + first * kPanelRows * 2, count * kPanelRows, to);
  if (w.code != PackedCode::kBF16) return OpenIntegers(w, panel, first, count, to);
  const auto* pairs = reinterpret_cast<const uint32_t*>(panel + first / 2 * kGroupBytes);
  for (int64_t c = 0; c < count; c += 2, pairs += kPanelRows, to += 2 * kPanelRows) {
    for (int64_t r = 0; r < kPanelRows; ++r) to[r] = FloatOf(pairs[r] << 16);
    for (int64_t r = 0; r < kPanelRows; ++r) to[kPanelRows + r] = FloatOf(pairs[r] & 0xffff0000u);
  }
}

template <class D>
void SumPanelUnrounded(const PanelSums& run) {
  constexpr bool kLoops = D::HasLoop(D::kRows);
  constexpr int64_t kFew = 3 * (kLoops ? 1 : D::kRows);  // above it, or for a loop, which reads f32, f16 is converted
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const std::byte* panel = w.data + run.panel * w.panel_bytes;
  const bool halves = w.code == PackedCode::kF16 && run.rows <= kFew;
  const bool open = w.code != PackedCode::kF32 && !halves;
  const int64_t tiles = (run.rows + D::kRows - 1) / D::kRows;
  const int64_t per_chunk = w.integer() ? kTokenBlock : kFloatColumns;
  const auto byte_of = [&w](int64_t column) { return column * w.panel_bytes / w.cols; };  // approximate for integers
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  alignas(64) float opened[kTokenBlock * kPanelRows], values[kLoops ? D::kRows * kFloatXStride : 1];
  for (int64_t first = 0; first < w.cols; first += per_chunk) {
    const int64_t columns = per_chunk < w.cols - first ? per_chunk : w.cols - first;
    const std::byte *at = panel + byte_of(first), *next = panel + byte_of(first + columns);
    const int64_t each = (next - at) / tiles;
    if (open) OpenFloats(w, panel, first, columns, opened);
    FloatTile tile = {};
    tile.w = open ? reinterpret_cast<const std::byte*>(opened) : at;
    tile.columns = columns;
    tile.x_stride = kLoops ? kFloatXStride : x.stride / 4;
    tile.ahead_bytes = each;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t token = i * run.rows / tiles, tokens = (i + 1) * run.rows / tiles - token;
      const std::byte* rows = x.values + (run.first + token) * x.stride + first * 4;
      tile.x = kLoops ? values : reinterpret_cast<const float*>(rows);
      for (int64_t t = 0; t < tokens && kLoops; ++t) {
        std::memcpy(values + t * kFloatXStride, rows + t * x.stride, static_cast<size_t>(columns) * sizeof(float));
      }
      tile.y = run.sums + token * kPanelRows;
      tile.ahead = next + i * each;
      halves ? RunFloatTileOf<D, HalfFloats>(tokens, tile) : RunFloatTileOf<D, WholeFloats>(tokens, tile);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
