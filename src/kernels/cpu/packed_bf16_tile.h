// Multiplies a panel of bf16 for an instruction set without products of it: weights and tokens are widened to f32, a
// sum is one chain of multiply-adds, columns ascending. After the set's simd_*.h; D opens the pairs (packed_tile.h).
// Chunks and tiles as there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/packed_tile.h"

namespace tactus::kernels {
namespace {

template <class D, int kTokens>
__attribute__((noinline)) void RunBf16Tile(const std::byte* w, int64_t pairs, const float* x_first, int64_t x_stride,
                                           float* y_first) {
  for (int64_t r = 0; r < kPanelRows; r += kTileVectors * Simd::kWidth) {
    Simd::F sum[kTokens][kTileVectors];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) sum[t][v] = Simd::Load(y_first + t * kPanelRows + r + v * Simd::kWidth);
    }
    for (int64_t p = 0; p < pairs; ++p) {
      const std::byte* at = w + p * kGroupBytes + r * 4;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Simd::F x[kTokens];
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) x[t] = Simd::Set1(x_first[t * x_stride + 2 * p + half]);
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) {
          const auto bytes = D::LoadBytes(at + v * Simd::kWidth * 4);
          const Simd::F f = half == 0 ? D::FirstBf16(bytes) : D::SecondBf16(bytes);
#pragma GCC unroll 4
          for (int t = 0; t < kTokens; ++t) sum[t][v] = Simd::MulAdd(f, x[t], sum[t][v]);
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) Simd::Store(y_first + t * kPanelRows + r + v * Simd::kWidth, sum[t][v]);
    }
  }
}

template <class D>
void SumPanelBf16(const PanelSums& run) {
  constexpr int kTokens = 2;
  constexpr int64_t kPairs = 64;  // of a chunk: 16 KiB of weights
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const int64_t pairs = (w.cols + 1) / 2, tiles = (run.rows + kTokens - 1) / kTokens;
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  alignas(64) float wide[kTokens][2 * kPairs];
  for (int64_t p = 0; p < pairs; p += kPairs) {
    const std::byte* at = w.data + run.panel * w.panel_bytes + p * kGroupBytes;
    const int64_t count = kPairs < pairs - p ? kPairs : pairs - p;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = tile * run.rows / tiles, rows = (tile + 1) * run.rows / tiles - first;
      for (int64_t t = 0; t < rows; ++t) {  // rows of tokens are padded: whole vectors may be read
        const std::byte* from = x.values + (run.first_row + first + t) * x.stride + p * 4;
        for (int64_t i = 0; i < 2 * count; i += Simd::kWidth) Simd::Store(wide[t] + i, Simd::LoadBF16(from + 2 * i));
      }
      float* y = run.sums + first * kPanelRows;
      if (rows == 1) RunBf16Tile<D, 1>(at, count, wide[0], 2 * kPairs, y);
      if (rows == 2) RunBf16Tile<D, 2>(at, count, wide[0], 2 * kPairs, y);
    }
  }
}

}  // namespace
}  // namespace tactus::kernels
