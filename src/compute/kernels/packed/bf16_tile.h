// Multiplies a panel of bf16 on an instruction set without bf16 products: weights and tokens are widened to f32, and a
// sum is one chain of multiply-adds, columns ascending. D widens the pairs (tile.h). Chunks and tiles as in tile.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/kernels/packed/tile.h"
#include "compute/kernels/simd/simd.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kBf16StepPairs = 8;                              // between two prefetch steps
inline constexpr int64_t kBf16Pairs = 64, kBf16XStride = 2 * kBf16Pairs;  // per chunk: 16 KiB of weights

// sum: in and out.
template <class D, int kTokens, int kVectors>
inline __attribute__((always_inline)) void AddPairs(const std::byte* at, int64_t pairs, const float* x,
                                                    Simd::F (&sum)[kTokens][kVectors]) {
#pragma GCC unroll 1
  for (int64_t p = 0; p < pairs; ++p, at += kGroupBytes, x += 2) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Simd::F f[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto bytes = D::LoadBytes(at + v * Simd::kWidth * 4);
        f[v] = half == 0 ? D::FirstBf16(bytes) : D::SecondBf16(bytes);
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const Simd::F value = Simd::Set1(x[t * kBf16XStride + half]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[t][v] = Simd::MulAdd(f[v], value, sum[t][v]);
      }
    }
  }
}

template <class D, int kTokens>
__attribute__((noinline)) void RunBf16Tile(const std::byte* w, int64_t pairs, const float* x_first, float* y_first,
                                           const std::byte* ahead, int64_t ahead_bytes) {
  constexpr int kVectors = D::VectorsOf(kTokens);
  constexpr int64_t kTileRows = kVectors * Simd::kWidth;
  constexpr bool kHasLoop = D::HasLoop(kTokens);
  const int64_t step = kHasLoop ? kBf16Pairs : kBf16StepPairs;
  const int64_t steps = kPanelRows / kTileRows * ((pairs + step - 1) / step);
  Ahead fetch = {ahead, (ahead_bytes / steps + 63) / 64 * 64};
  for (int64_t r = 0; r < kPanelRows; r += kTileRows) {
    if constexpr (kHasLoop) {
      fetch.Step();
      D::template LoopBf16<kTokens>(w + r * 4, w + r * 4 + pairs * kGroupBytes, x_first, y_first + r);
      continue;
    }
    Simd::F sum[kTokens][kVectors];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[t][v] = Simd::Load(y_first + t * kPanelRows + r + v * Simd::kWidth);
    }
#pragma GCC unroll 1
    for (int64_t p = 0; p < pairs; p += kBf16StepPairs) {
      const int64_t count = pairs - p < kBf16StepPairs ? pairs - p : kBf16StepPairs;
      fetch.Step();
      AddPairs<D, kTokens, kVectors>(w + p * kGroupBytes + r * 4, count, x_first + 2 * p, sum);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) Simd::Store(y_first + t * kPanelRows + r + v * Simd::kWidth, sum[t][v]);
    }
  }
}

template <class D>
void RunBf16TileOf(int64_t tokens, const std::byte* w, int64_t pairs, const float* x, float* y, const std::byte* ahead,
                   int64_t ahead_bytes) {
  using Tile = void (*)(const std::byte*, int64_t, const float*, float*, const std::byte*, int64_t);
  constexpr Tile kTiles[] = {RunBf16Tile<D, 1>, RunBf16Tile<D, 2>,      RunBf16Tile<D, 3>, RunBf16Tile<D, 4>,
                             RunBf16Tile < D,   D::kRows < 5 ? 4 : 5 >, RunBf16Tile < D,   D::kRows < 6 ? 4 : 6 > };
  kTiles[tokens - 1](w, pairs, x, y, ahead, ahead_bytes);
}

template <class D>
void SumPanelBf16(const PanelSums& run) {
  static_assert(D::kRows >= 4 && D::kRows <= 6);
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const int64_t pairs = (w.cols + 1) / 2, tiles = (run.rows + D::kRows - 1) / D::kRows;
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  alignas(64) float wide[D::kRows * kBf16XStride];
  for (int64_t p = 0; p < pairs; p += kBf16Pairs) {
    const std::byte* at = w.data + run.panel * w.panel_bytes + p * kGroupBytes;
    const int64_t count = kBf16Pairs < pairs - p ? kBf16Pairs : pairs - p, each = count * kGroupBytes / tiles;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = tile * run.rows / tiles, tokens = (tile + 1) * run.rows / tiles - first;
      for (int64_t t = 0; t < tokens; ++t) {  // rows of tokens are padded: whole vectors may be read
        const std::byte* from = x.values + (run.first + first + t) * x.stride + p * 4;
        float* to = wide + t * kBf16XStride;
        for (int64_t i = 0; i < 2 * count; i += Simd::kWidth) Simd::Store(to + i, Simd::LoadBF16(from + 2 * i));
      }
      RunBf16TileOf<D>(tokens, at, count, wide, run.sums + first * kPanelRows, at + count * kGroupBytes + tile * each,
                       each);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
