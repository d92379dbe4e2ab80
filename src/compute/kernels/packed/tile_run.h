// The operands of one tile of integer codes (tile.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/panel.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kChunkColumns = kTokenBlock, kChunkBlocks = kChunkColumns / 16;
inline constexpr int64_t kGroupBytes = kPanelRows * 4;  // 4 columns of 8-bit codes, or 8 of 4-bit codes
inline constexpr int kMostTileRows = 6;

// Terms of a tile's rows for the blocks of a chunk.
struct TileTerms {
  alignas(32) int32_t start[kMostTileRows][kChunkBlocks];  // start of a block's sum; has_zeros: PackSum(-sum of q)
  alignas(32) float total[kMostTileRows][kChunkBlocks];    // with minima: the sum of q times scale
  float scale[kMostTileRows][kChunkBlocks];
};

// The codes and scales of a chunk, for all of its tiles.
struct ChunkOfWeights {
  const std::byte* codes;  // of the first block
  int64_t codes_each;      // bytes from one block's codes to the next block's
  int64_t blocks, block;   // number, and columns of each
  const float* scales;     // [blocks][64]; null: the row's one scale is applied at the end
  const float* minima;     // [blocks][64]; null: none
  const int32_t* zeros;    // [blocks][64] of PackZeros; null: none, or already subtracted
  int32_t zero;            // subtracted from every code; without zeros
};

inline constexpr int32_t kZeroedCentre = 64;  // makes 4 * code + (kZeroedCentre - z) a byte without sign

// One tile of a chunk.
struct TileRun {
  const ChunkOfWeights* weights;
  const std::byte* x;     // prepared rows
  const WideGroup* wide;  // the first row's first group of the chunk; null: none, or D::kMerged
  int64_t wide_stride;    // groups per row
  int32_t wide_columns;   // TokenFormat::wide
  const TileTerms* terms;
  float* y;                // [rows][64]
  const std::byte* ahead;  // memory to prefetch, an even share at each block of each vector
  int64_t ahead_bytes;
};

// Prefetches the lines of [at, ...) a few at a time: more at once would delay each other.
struct Ahead {
  const std::byte* at;
  int64_t each;  // bytes, whole lines

  __attribute__((always_inline)) void Step() {
#pragma GCC unroll 1
    for (const std::byte* end = at + each; at < end; at += 64) __builtin_prefetch(at);
  }
};

}  // namespace
}  // namespace tactus::compute
