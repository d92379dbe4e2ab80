// Runs the tiles of a chunk of integer codes (tile.h): makes each tile's tokens ready for it, and asks for those
// of the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/packed/tile.h"

namespace tactus::kernels {
namespace {

template <class D, bool kU4, int kPlanes, bool kLong>
void RunIntTileOf(int64_t tokens, const TileRun& run) {
  static_assert(D::kRows <= kMostTileRows && D::kRows % kPlanes == 0);
  constexpr int kTokens = D::kRows / kPlanes;
  if (tokens == 1) return RunIntTile<D, kU4, kPlanes, kLong, 1 * kPlanes>(run);
  if constexpr (kTokens >= 2) {
    if (tokens == 2) return RunIntTile<D, kU4, kPlanes, kLong, 2 * kPlanes>(run);
  }
  if constexpr (kTokens >= 3) {
    if (tokens == 3) return RunIntTile<D, kU4, kPlanes, kLong, 3 * kPlanes>(run);
  }
  if constexpr (kTokens >= 4) {
    if (tokens == 4) return RunIntTile<D, kU4, kPlanes, kLong, 4 * kPlanes>(run);
  }
  if constexpr (kTokens >= 5) {
    if (tokens == 5) return RunIntTile<D, kU4, kPlanes, kLong, 5 * kPlanes>(run);
  }
  if constexpr (kTokens >= 6) {
    if (tokens == 6) return RunIntTile<D, kU4, kPlanes, kLong, 6 * kPlanes>(run);
  }
}

// Of `token`, the tile's k-th, whose rows are kPlanes; a block has kSums entries of PackedTokens::sums. (The high
// plane's start stays 0.)
template <class D, int kPlanes, int kSums>
inline __attribute__((always_inline)) void FillTerms(const PackedMatrix& w, const PackedTokens& x, int64_t token,
                                                     int64_t column, const ChunkOfWeights& chunk, int64_t k,
                                                     TileTerms* terms) {
  terms->scale[k] = x.scales[token * x.scale_count() + column / kTokenBlock];
  const int32_t* shifts = x.shifts + (x.shifts != nullptr ? token * x.shift_count() : 0);
  for (int64_t b = 0; b < kChunkBlocks / kSums; ++b) {
    terms->raise[k][b] =
        x.shifts != nullptr ? static_cast<float>(1 << shifts[(column + b * kSums * 16) / x.format.block]) : 1.0f;
  }
  if (chunk.centred && chunk.minima == nullptr) return;
  const int32_t* from = x.sums + token * x.sum_count() + column / 16;
  int32_t* start = terms->start[k * kPlanes + kPlanes - 1];
  const int32_t factor = chunk.centred ? 0 : D::kCodeOffset - w.zero;
  if constexpr (D::kVectorTerms) {
    return D::template Terms<kSums>(from, factor, chunk.zeros != nullptr, start, terms->total[k]);
  }
  for (int b = 0; b < kChunkBlocks / kSums; ++b) {
    int32_t sum = 0;
    for (int i = 0; i < kSums; ++i) sum += from[b * kSums + i];
    start[b] = chunk.zeros != nullptr ? D::PackSum(-sum) : factor * sum;
    terms->total[k][b] = static_cast<float>(sum);
  }
}

// Of a tile's tokens, [token, token + count).
template <class D, int kPlanes>
inline __attribute__((always_inline)) void FillTileTerms(const PackedMatrix& w, const PackedTokens& x, int64_t token,
                                                         int64_t count, int64_t column, const ChunkOfWeights& chunk,
                                                         TileTerms* terms) {
  const auto fill = [&](auto sums) {
#pragma GCC unroll 1
    for (int64_t k = 0; k < count; ++k) FillTerms<D, kPlanes, sums.value>(w, x, token + k, column, chunk, k, terms);
  };
  switch (chunk.block) {
    case 16:
      return fill(std::integral_constant<int, 1>());
    case 32:
      return fill(std::integral_constant<int, 2>());
    case 64:
      return fill(std::integral_constant<int, 4>());
    default:
      return fill(std::integral_constant<int, 8>());
  }
}

// What the next tile will read of its tokens.
inline void FetchTokens(const PackedTokens& x, int64_t token, int64_t count, int64_t column) {
  const int64_t planes = x.format.planes;
#pragma GCC unroll 1
  for (int64_t t = token; t < token + count; ++t) {
    __builtin_prefetch(x.sums + t * x.sum_count() + column / 16);
    __builtin_prefetch(x.scales + t * x.scale_count() + column / kTokenBlock);
#pragma GCC unroll 1
    for (int64_t row = t * planes; row < (t + 1) * planes; ++row) {
      __builtin_prefetch(x.values + row * x.stride + column);
      __builtin_prefetch(x.values + row * x.stride + column + kChunkColumns / 2);
    }
  }
}

// All tiles of one chunk whose codes are bytes (kU4: nibbles). `column`: the chunk's first; `next`: what is read after
// it.
template <class D, bool kU4, int kPlanes>
void RunChunk(const PanelSums& run, const ChunkOfWeights& chunk, int64_t column, const std::byte* next,
              int64_t next_bytes) {
  const PackedTokens& x = *run.x;
  constexpr int64_t kMost = D::kRows / kPlanes;
  const int64_t tiles = (run.tokens + kMost - 1) / kMost;
  alignas(64) std::byte prepared[D::kRows * kXStride<D>];
  TileTerms terms;
  for (int i = 0; i < D::kRows; ++i) {
    for (int b = 0; b < kChunkBlocks; ++b) terms.start[i][b] = 0;
  }
  TileRun tile_run = {&chunk, prepared, &terms, nullptr, next, (next_bytes / tiles + 63) / 64 * 64};
  for (int64_t tile = 0; tile < tiles; ++tile, tile_run.ahead += tile_run.ahead_bytes) {
    const int64_t first = tile * run.tokens / tiles, count = (tile + 1) * run.tokens / tiles - first;
    FillTileTerms<D, kPlanes>(*run.w, x, run.first + first, count, column, chunk, &terms);
#pragma GCC unroll 1
    for (int64_t k = 0; k < count; ++k) {
      const int64_t token = run.first + first + k;
      const std::byte* values = x.values + token * x.format.planes * x.stride + column;
      if constexpr (D::kMerged) {
        const std::byte* high = x.format.planes == 2 ? values : nullptr;
        D::PrepareX(high, high == nullptr ? values : values + x.stride, prepared + k * kXStride<D>);
      } else {
        for (int p = 0; p < kPlanes; ++p) {
          std::byte* to = prepared + (k * kPlanes + p) * kXStride<D>;
#pragma GCC unroll 8
          for (int64_t c = 0; c < kChunkColumns; c += 4 * D::kWidth) {
            D::StoreBytes(to + c, D::LoadBytes(values + p * x.stride + c));
          }
        }
      }
    }
    tile_run.y = run.sums + first * kPanelRows;
    const int64_t after = run.tokens - first - count;
    FetchTokens(x, run.first + first + count, after < kMost ? after : kMost, column);
    if (chunk.block > kEach<D>) {
      RunIntTileOf<D, kU4, kPlanes, true>(count, tile_run);
    } else {
      RunIntTileOf<D, kU4, kPlanes, false>(count, tile_run);
    }
  }
}

}  // namespace
}  // namespace tactus::kernels
