// One tile of integer codes: up to 6 rows of tokens times 64 rows of weights, over the blocks of a chunk. Only vnni.cc
// includes it.
//
// A tile is one piece of assembly. GCC 12 keeps addresses of such loops in vector registers, so that the next block's
// loads wait for this block's arithmetic, and moves and spills sums: 10 % slower than assembly.
#pragma once

#include <cstddef>

#include "compute/kernels/packed/avx512/tile.h"
#include "compute/kernels/packed/avx512/vnni_asm.h"
#include "compute/kernels/packed/avx512/vnni_asm_tile.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kSumColumns = 16;  // columns of one entry of PackedTokens::sums
inline constexpr int64_t kTokenSteps = kTokenBlock / kSumColumns;
inline constexpr int64_t kLongChunkColumns = 512;  // most columns of a panel per chunk
inline constexpr int64_t kChunkBlocks = kLongChunkColumns / 16;

// Layout of a chunk's codes: as bytes, as pairs of 4 bits, or as pairs with zero points.
enum class Codes { kBytes, kNibbles, kZeroed };
// Kept: a tile unpacks 4-bit codes and stores them as bytes, ready to be multiplied, for the following tiles.
enum class Kept { kNo, kYes };

// A block's scales: none (the row's is applied at the end: Finish in packed.cc), scales, or also minima.
enum class Scales { kNone, kScale, kMinimum };

// A chunk's scales and minima as f32, and its zero points as 64 - z in each byte of a row.
struct alignas(64) ChunkScales {
  float scale[kChunkBlocks][kPanelRows];
  float minimum[kChunkBlocks][kPanelRows];
  int32_t offset[kChunkBlocks][kPanelRows];
};

// One tile's pass over the blocks of a chunk, whose first is also the first of a token block.
struct TilePass {
  const std::byte* codes;  // first block's
  int64_t gap;             // bytes between the end of one block's codes and the next block's
  int64_t blocks;
  const ChunkScales* scales;
  std::byte* kept;        // receives codes as bytes, if they are kept
  const std::byte* x;     // values of the chunk
  int64_t x_stride;       // of rows
  const int32_t* start;   // of the chunk
  int64_t scale_offset;   // bytes from an entry of start to its scale (packed.h)
  int64_t total_offset;   // to its total; with minima
  int64_t term_stride;    // of rows
  const WideGroup* wide;  // of the chunk; null: none
  int64_t wide_stride;    // bytes
  float* y;               // [rows][64]
  Ahead ahead;
};

// Offsets used by the assembly.
static_assert(offsetof(ChunkScales, minimum) == 8192 && offsetof(ChunkScales, offset) == 16384);

// A block is kSteps x 16 columns and has kGroups wide groups.
template <Codes kCodes, Kept kKept, Scales kScales, int kSteps, int kGroups, int kRows>
__attribute__((noinline)) void RunTile(const TilePass& t) {
  static_assert(kRows <= 6 && sizeof(WideGroup) == 8);
  // Distance between the columns of adjacent wide groups, in half bytes.
  constexpr int64_t kUnitBytes = kGroups > 0 ? kSteps * kSumColumns / kGroups * kPanelRows / 2 : 0;
  const std::byte* w = t.codes;
  const std::byte* x = t.x;
  const auto* scales = reinterpret_cast<const std::byte*>(t.scales);
  const int32_t* start = t.start;
  const WideGroup* wide = t.wide;
  uintptr_t ahead = t.ahead.at;
  std::byte* kept = t.kept;
  // Masks of codes, and of the bit of WideGroup::first that selects the half byte of a group's codes.
  const uint32_t masks[] = {kCodes == Codes::kZeroed ? 0x3c3c3c3cu : 0x0f0f0f0fu, uint32_t{kWideColumns}};
  int64_t n = t.blocks, i, k;
  if constexpr (kCodes == Codes::kBytes) {
    TACTUS_TILES(BYTES, DROP)
  } else if constexpr (kCodes == Codes::kNibbles && kKept == Kept::kNo) {
    TACTUS_TILES(NIBBLES, DROP)
  } else if constexpr (kCodes == Codes::kNibbles) {
    TACTUS_TILES(NIBBLES, KEEP)
  } else if constexpr (kKept == Kept::kNo) {
    TACTUS_TILES(ZEROED, DROP)
  } else {
    TACTUS_TILES(ZEROED, KEEP)
  }
}

}  // namespace
}  // namespace tactus::compute
