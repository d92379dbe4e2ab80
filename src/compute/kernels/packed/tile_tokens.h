// Runs the tiles of a chunk of integer codes (tile.h): prepares each tile's tokens and prefetches the next tile's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "compute/kernels/packed/tile.h"

namespace tactus::compute {
namespace {

// Codes of 4 bits have no tiles of D::kOpenedRows rows, because as many rows use opened codes.
template <class D, bool kU4, bool kLong>
void RunIntTileOf(int64_t rows, const TileRun& run) {
  static_assert(D::kRows <= kMostTileRows);
  if (rows == 1) return RunIntTile<D, kU4, kLong, 1>(run);
  if constexpr (D::kRows >= 2) {
    if (rows == 2) return RunIntTile<D, kU4, kLong, 2>(run);
  }
  if constexpr (D::kRows >= 3) {
    if (rows == 3) return RunIntTile<D, kU4, kLong, 3>(run);
  }
  if constexpr (D::kRows >= 4 && (!kU4 || D::kOpenedRows > 4)) {
    if (rows == 4) return RunIntTile<D, kU4, kLong, 4>(run);
  }
  if constexpr (D::kRows >= 5 && (!kU4 || D::kOpenedRows > 5)) {
    if (rows == 5) return RunIntTile<D, kU4, kLong, 5>(run);
  }
  if constexpr (D::kRows >= 6 && (!kU4 || D::kOpenedRows > 6)) {
    if (rows == 6) return RunIntTile<D, kU4, kLong, 6>(run);
  }
}

// The chunk's columns of all tokens. Made once per chunk, because it divides.
struct ChunkOfTokens {
  const std::byte* values;
  const float* scales;
  const int32_t* sums;
  const WideGroup* wide;                                   // null: none
  int64_t values_each, scales_each, sums_each, wide_each;  // from one row to the next

  ChunkOfTokens(const PackedTokens& x, int64_t column)
      : values(x.values + column),
        scales(x.scales + column / x.format.block),
        sums(x.sums + column / 16),
        wide(x.wide == nullptr ? nullptr : x.wide + column / x.format.wide),
        values_each(x.stride),
        scales_each(x.scale_count()),
        sums_each(x.sum_count()),
        wide_each(x.wide_count()) {}
};

// Terms of `row`, the tile's k-th; a block has kSums entries of PackedTokens::sums.
template <class D, int kSums>
inline __attribute__((always_inline)) void FillTerms(const ChunkOfTokens& x, int64_t row, const ChunkOfWeights& chunk,
                                                     int64_t k, TileTerms* terms) {
  constexpr int kBlocks = kChunkBlocks / kSums;
  const float* from_scales = x.scales + row * x.scales_each;
  float scales[kBlocks];  // the source of both uses below: a load of what was just stored in parts would wait
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) scales[b] = from_scales[kSums == 1 ? b / 2 : b];  // TokensFor
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) terms->scale[k][b] = scales[b];
  if (chunk.zero == 0 && chunk.zeros == nullptr && chunk.minima == nullptr && D::kCodeOffset == 0) return;
  const int32_t* from = x.sums + row * x.sums_each;
  int32_t* start = terms->start[k];
  const int32_t factor = D::kCodeOffset - chunk.zero;
  if constexpr (D::kVectorTerms) {
    D::template Terms<kSums>(from, factor, chunk.zeros != nullptr, start, terms->total[k]);
  } else {
    for (int b = 0; b < kBlocks; ++b) {
      int32_t sum = 0;
      for (int i = 0; i < kSums; ++i) sum += from[b * kSums + i];
      start[b] = chunk.zeros != nullptr ? D::PackSum(-sum) : factor * sum;
      terms->total[k][b] = static_cast<float>(sum);
    }
  }
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) terms->total[k][b] *= scales[b];
}

// Terms of a tile's rows, [row, row + count).
template <class D>
inline __attribute__((always_inline)) void FillTileTerms(const ChunkOfTokens& x, int64_t row, int64_t count,
                                                         const ChunkOfWeights& chunk, TileTerms* terms) {
  const auto fill = [&](auto sums) {
#pragma GCC unroll 1
    for (int64_t k = 0; k < count; ++k) FillTerms<D, sums.value>(x, row + k, chunk, k, terms);
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

// Prefetches what the next tile reads of its rows.
inline void FetchTokens(const ChunkOfTokens& x, int64_t row, int64_t count) {
#pragma GCC unroll 1
  for (int64_t r = row; r < row + count; ++r) {
    __builtin_prefetch(x.sums + r * x.sums_each);
    __builtin_prefetch(x.scales + r * x.scales_each);
    if (x.wide != nullptr) __builtin_prefetch(x.wide + r * x.wide_each);
    __builtin_prefetch(x.values + r * x.values_each);
    __builtin_prefetch(x.values + r * x.values_each + kChunkColumns / 2);
  }
}

// A chunk of a row, prepared; wide: its groups, or null.
template <class D>
inline __attribute__((always_inline)) void PrepareRow(const std::byte* values, const WideGroup* wide,
                                                      int32_t wide_columns, std::byte* to) {
  if constexpr (!D::kMerged) {
#pragma GCC unroll 8
    for (int64_t c = 0; c < kChunkColumns; c += 4 * D::kWidth) D::StoreBytes(to + c, D::LoadBytes(values + c));
    return;
  } else {
    D::PrepareX(values, to);
    if (wide == nullptr) return;
#pragma GCC unroll 1
    for (int64_t c = 0; c < kChunkColumns; c += wide_columns, ++wide) D::AddUpper(*wide, to + 2 * (c + wide->first));
  }
}

// All tiles of one chunk, whose codes are bytes (kU4: nibbles). `column`: the chunk's first; `next`: memory read after
// it.
template <class D, bool kU4>
void RunChunk(const PanelSums& run, const ChunkOfWeights& chunk, int64_t column, const std::byte* next,
              int64_t next_bytes) {
  const int32_t wide_columns = run.x->format.wide;
  const ChunkOfTokens x(*run.x, column);
  const int64_t tiles = (run.rows + D::kRows - 1) / D::kRows;
  alignas(64) std::byte prepared[D::kRows * kXStride<D>];
  TileTerms terms;
  for (int i = 0; i < D::kRows; ++i) {
    for (int b = 0; b < kChunkBlocks; ++b) terms.start[i][b] = 0;
  }
  TileRun tile_run = {};
  tile_run.weights = &chunk;
  tile_run.x = prepared;
  tile_run.wide_stride = x.wide_each;
  tile_run.wide_columns = wide_columns;
  tile_run.terms = &terms;
  tile_run.ahead = next;
  tile_run.ahead_bytes = (next_bytes / tiles + 63) / 64 * 64;
  const int64_t least = run.rows / tiles, larger = run.rows % tiles;  // rows of a tile; tiles with one more
  int64_t first = 0, count = 0;
  for (int64_t tile = 0; tile < tiles; ++tile, first += count, tile_run.ahead += tile_run.ahead_bytes) {
    count = least + (tile < larger ? 1 : 0);
    FillTileTerms<D>(x, run.first + first, count, chunk, &terms);
#pragma GCC unroll 1
    for (int64_t k = 0; k < count; ++k) {
      const int64_t row = run.first + first + k;
      const WideGroup* wide = x.wide == nullptr ? nullptr : x.wide + row * x.wide_each;
      if (k == 0) tile_run.wide = D::kMerged ? nullptr : wide;
      PrepareRow<D>(x.values + row * x.values_each, wide, wide_columns, prepared + k * kXStride<D>);
    }
    tile_run.y = run.sums + first * kPanelRows;
    const int64_t after = run.rows - first - count;
    FetchTokens(x, run.first + first + count, after < D::kRows ? after : D::kRows);
    if (chunk.block > kEach<D>) {
      RunIntTileOf<D, kU4, true>(count, tile_run);
    } else {
      RunIntTileOf<D, kU4, false>(count, tile_run);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
