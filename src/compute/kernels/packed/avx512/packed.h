// Products of packed weights with packed tokens (compute/kernels/packed/packed.h) in AVX-512: the interface between
// packed.cc, which distributes and finishes the work, and the files that multiply, each compiled for its instruction:
// vnni.cc, bf16.cc and unrounded.cc here, and ../amx/packed.cc. Stateless; any thread.
//
// A panel of 64 rows is multiplied with the token rows in tiles of up to 6 x 64: 24 accumulators, 4 vectors of weights,
// one broadcast. The panel is read in chunks that stay in the L1 cache while all tiles use them, so every weight is
// read from memory once; each tile prefetches its share of the next chunk. Between chunks a tile's sums are in `sums`.
#pragma once

#include <cstdint>
#include <span>

#include "compute/kernels/ops.h"

namespace tactus::compute {

inline constexpr int64_t kTileTokens = 6;  // rows of a bf16 tile

// Terms of the token rows for blocks of integer weights, equal for every panel: computed once per product.
struct TokenTerms {
  int32_t* start = nullptr;  // [rows][stride]: -offset * (sum of the block's values), the start value of a block's sum
  float* scale = nullptr;    // [rows][stride]: the block's scale
  float* total = nullptr;    // [rows][stride], with minima: sum of the block's values * scale
  int64_t stride = 0;        // blocks per row, padding included
  // [rows][PackedTokens::stride]: the upper bytes of wide groups in their columns, zeros elsewhere. For tiles; null:
  // not made.
  std::byte* upper = nullptr;
};
int64_t TermBytes(const PackedTokens& x, const PackedMatrix& w);
TokenTerms PlaceTerms(std::byte* memory, const PackedTokens& x, const PackedMatrix& w);
void FillTerms(const PackedTokens& x, const PackedMatrix& w, int64_t first_row, int64_t rows, const TokenTerms& terms);

// One panel of `w` times the rows [first_row, first_row + rows) of `x`.
struct PanelRun {
  const PackedMatrix* w = nullptr;
  const PackedTokens* x = nullptr;
  TokenTerms terms;  // integer codes
  int64_t panel = 0;
  int64_t first_row = 0, rows = 0;
  const std::byte* next = nullptr;  // what this thread will probably read after this panel
  // Where the caller will store the sums: prefetched for writing during the last chunk, since stores would wait for
  // these lines otherwise. 256 bytes per token; null: no prefetch.
  const float* out = nullptr;
  int64_t out_stride = 0, out_tokens = 0;  // elements; rows
  float* sums = nullptr;                   // out: [rows][64], 64-byte aligned
};

// How panels are multiplied, and the work divided for it.
struct Multiplier {
  void (*sum_panel)(const PanelRun& run);
  bool (*by_tiles)(const PackedTokens& x, const PackedMatrix& w) = nullptr;  // matrix tiles multiply them; null: never
  int64_t tile_rows = 1;  // by tiles every task but the one with the last tokens has a multiple of this many token rows
  // By tiles: bytes of tokens that are multiplied with every panel before the next tokens, or one task's, if more.
  int64_t tile_pass_bytes = 0;
};
// The linear operators (compute/kernels/ops.h) of sets with AVX-512.
void LinearPackedBy512(const Multiplier& by, ThreadPool& pool, const PackedTokens& x,
                       std::span<const LinearOutput> outputs, Workspace scratch);
void GatedPackedBy512(const Multiplier& by, ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate,
                      const float* gate_bias, const PackedMatrix& up, const float* up_bias, float* inner,
                      const PackedTokens& out, Workspace scratch);

// Integer codes: with block > 0 the sums are y of packed/packed.h; with block == 0 y without the row's scale.
// Precondition: CpuHasAvx512Vnni().
void SumPanelVnni(const PanelRun& run);
// bf16. A sum's chain takes columns 2i + 1 and 2i of pair i in one instruction. Precondition: CpuHasAvx512Bf16().
void SumPanelBf16(const PanelRun& run);
// Tokens of f32, any weights.
void SumPanelUnrounded(const PanelRun& run);

}  // namespace tactus::compute
