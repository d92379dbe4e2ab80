// Products of packed weights with packed tokens (compute/kernels/packed/packed.h) in AVX-512: what packed.cc, which
// hands out the work and finishes it, shares with the three files that multiply, each compiled for its instruction.
// Stateless; any thread.
//
// A panel of 64 rows meets the token rows in tiles of up to 6 x 64: 24 accumulators, 4 vectors of weights, one
// broadcast. The panel is read in chunks that stay in the first-level cache while all tiles pass over them, so memory
// sees every weight once; each tile asks for its share of the chunk that comes next. Between chunks a tile's sums rest
// in `sums`.
#pragma once

#include <cstdint>

#include "compute/kernels/ops.h"

namespace tactus::compute {

inline constexpr int64_t kTileTokens = 6;  // of a tile of bf16

// What rows of tokens bring to the blocks of integer weights, the same for every panel: made once per product.
struct TokenTerms {
  int32_t* start = nullptr;  // [rows][stride]: -offset * (sum of the block's values), where a block's sum starts
  float* scale = nullptr;    // [rows][stride]: of the block
  float* total = nullptr;    // [rows][stride], with minima: sum of the block's values * scale
  int64_t stride = 0;        // blocks of a row, padding included
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
  const std::byte* next = nullptr;  // what this thread will likely read after this panel
  // Where the caller will put the sums: fetched for writing while the last chunk is worked on, as lines come slowly
  // otherwise. 256 bytes per token; null: nothing to fetch.
  const float* out = nullptr;
  int64_t out_stride = 0, out_tokens = 0;  // elements; rows
  float* sums = nullptr;                   // out: [rows][64], 64-byte aligned
};

// Integer codes: with block > 0 the sums are y of packed/packed.h; with block == 0 before the row's scale.
// Precondition: CpuHasAvx512Vnni().
void SumPanelVnni(const PanelRun& run);
// bf16. A sum's chain takes columns 2i + 1 and 2i of pair i in one instruction. Precondition: CpuHasAvx512Bf16().
void SumPanelBf16(const PanelRun& run);
// Tokens of f32, any weights.
void SumPanelUnrounded(const PanelRun& run);

}  // namespace tactus::compute
