// Tiles of integer codes in passes: all blocks of a chunk in one piece of code of the instruction set, D::Pass
// (tile.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/tile_run.h"

namespace tactus::compute {
namespace {

// A block's scales: none (the row's is applied at the end), scales, or also minima.
enum class BlockScales : uint8_t { kNone, kScale, kMinimum };

// Blocks of a chunk by rows of tokens, for two vectors of weight rows.
struct BlockPass {
  const std::byte* codes;
  int64_t turns, gap;  // groups of columns per block; bytes from the end of a block's codes to the next block's
  int64_t blocks;
  const std::byte* x;  // prepared
  const TileTerms* terms;
  const float *scales, *minima;  // [blocks][64]
  const int32_t* zeros;          // [blocks][64] of PackZeros; null: none
  const WideGroup* wide;         // the first row's
  int64_t wide_stride;           // bytes per row
  int64_t groups_at[4];          // bytes from a block's codes to those of the columns of its wide groups
  float* y;                      // [rows][64]
  Ahead* ahead;
  int64_t lines;  // to prefetch at each block
};

template <class D, int kRows, BlockScales kScales>
void PassOf(const BlockPass& pass, int64_t groups) {
  if (groups == 0) return D::template Pass<kRows, kScales, 0>(pass);
  if constexpr (!D::kMerged) {
    if (groups == 1) return D::template Pass<kRows, kScales, 1>(pass);
    if (groups == 2) return D::template Pass<kRows, kScales, 2>(pass);
    return D::template Pass<kRows, kScales, 4>(pass);
  }
}

// The tile by D's own passes.
template <class D, int kRows>
__attribute__((noinline)) void RunPasses(const TileRun& run) {
  constexpr int64_t kTileRows = 2 * D::kWidth;
  const ChunkOfWeights& w = *run.weights;
  const int64_t groups = run.wide == nullptr ? 0 : w.block / run.wide_columns;
  Ahead ahead = {run.ahead, 0};
  BlockPass pass = {};
  pass.turns = w.block / D::kGroupColumns;
  pass.gap = w.codes_each - pass.turns * kGroupBytes;
  pass.blocks = w.blocks;
  pass.x = run.x;
  pass.terms = run.terms;
  pass.wide = run.wide;
  pass.wide_stride = run.wide_stride * static_cast<int64_t>(sizeof(WideGroup));
  for (int64_t g = 0; g < groups; ++g) pass.groups_at[g] = g * run.wide_columns / D::kGroupColumns * kGroupBytes;
  pass.ahead = &ahead;
  pass.lines = (run.ahead_bytes / (kPanelRows / kTileRows * w.blocks) + 63) / 64;
  for (int64_t r = 0; r < kPanelRows; r += kTileRows) {
    pass.codes = w.codes + r * 4;
    pass.y = run.y + r;
    if (w.scales == nullptr) {
      PassOf<D, kRows, BlockScales::kNone>(pass, groups);
      continue;
    }
    pass.scales = w.scales + r;
    pass.zeros = w.zeros == nullptr ? nullptr : w.zeros + r;
    if (w.minima == nullptr) {
      PassOf<D, kRows, BlockScales::kScale>(pass, groups);
      continue;
    }
    pass.minima = w.minima + r;
    PassOf<D, kRows, BlockScales::kMinimum>(pass, groups);
  }
}

}  // namespace
}  // namespace tactus::compute
