// One tile of integer codes: up to 4 tokens, or 2 of two planes, times 64 rows of weights, over the token blocks of a
// chunk. Included by vnni.cc alone.
//
// A token block is one piece of assembly. GCC 12 keeps addresses of such loops in vector registers, so that the next
// block's loads wait for this one's arithmetic, and moves and spills sums: 10 % slower than the same in assembly.
#pragma once

#include <cstddef>

#include "kernels/packed/avx512/tile.h"
#include "kernels/packed/avx512/vnni_asm.h"

namespace tactus::kernels {
namespace {

inline constexpr int64_t kSumColumns = 16;  // columns of one entry of PackedTokens::sums
inline constexpr int64_t kTokenSteps = kTokenBlock / kSumColumns;
inline constexpr int64_t kLongChunkColumns = 512;  // of a panel at a time, at most
inline constexpr int64_t kChunkBlocks = kLongChunkColumns / 16;

// How codes of a chunk lie: as bytes, as pairs of 4 bits, or as those with zero points.
enum class Codes { kBytes, kNibbles, kZeroed };
// Kept: a tile takes codes of 4 bits apart and leaves them as bytes, ready to be multiplied, for those that follow.
enum class Kept { kNo, kYes };

// What a block's scales are: none (the row's comes at the end: Finish in packed.cc), scales, or also minima.
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
  int64_t gap;             // bytes between the end of one block's codes and the next one's
  int64_t blocks;
  const ChunkScales* scales;
  std::byte* kept;        // where codes go as bytes, if they are kept
  const std::byte* x;     // values at the chunk
  int64_t x_stride;       // of rows
  const int32_t* start;   // at the chunk
  int64_t shift_offset;   // bytes from an entry of start to that of shift; of one plane with scales
  int64_t total_offset;   // bytes from an entry of start to that of total (packed.h); with minima
  int64_t term_stride;    // of tokens, as the next two
  const float* x_scales;  // at the chunk
  int64_t scale_stride;
  float* y;  // [tokens][64]
  Ahead ahead;
};

// A block is kSteps x 16 columns; without scales it is a token block.
template <Codes kCodes, Kept kKept, Scales kScales, int kSteps, int kPlanes, int kTokens>
__attribute__((noinline)) void RunTile(const TilePass& t) {
  static_assert(kTokens * kPlanes <= 4);
  const std::byte* w = t.codes;
  const std::byte* x = t.x;
  const auto* scales = reinterpret_cast<const std::byte*>(t.scales);
  const int32_t* start = t.start;
  const float* x_scales = t.x_scales;
  uintptr_t ahead = t.ahead.at;
  std::byte* kept = t.kept;
  alignas(64) float tokens_t[kTokens == 4 ? 2 * kPanelRows : 1];
  float* const rest = tokens_t;
  const uint32_t mask = kCodes == Codes::kZeroed ? 0x3c3c3c3c : 0x0f0f0f0f;
  for (int64_t left = t.blocks; left > 0; left -= kTokenSteps / kSteps, ++x_scales) {
    int64_t n = LeastOf(left, kTokenSteps / kSteps), i, k;
    if constexpr (kCodes == Codes::kBytes) {
      TACTUS_ENDS(TACTUS_STEP_BYTES)
    } else if constexpr (kCodes == Codes::kNibbles && kKept == Kept::kNo) {
      TACTUS_ENDS(TACTUS_STEP_NIBBLES)
    } else if constexpr (kCodes == Codes::kNibbles) {
      TACTUS_ENDS(TACTUS_STEP_NIBBLES_KEPT)
    } else if constexpr (kKept == Kept::kNo) {
      TACTUS_ENDS(TACTUS_STEP_ZEROED)
    } else {
      TACTUS_ENDS(TACTUS_STEP_ZEROED_KEPT)
    }
  }
}

}  // namespace
}  // namespace tactus::kernels
