// Intel AMX's tiles: how the products of a panel (integers.h, bf16.h) configure them, and prefetch. Both are written
// over a class Tiles of the instructions and a class Lanes of 16 lanes of 32 bits: the real ones in packed.cc, software
// models in tests/compute/kernels/tile_model.h.
//
// Registers: four tiles of sums, two of tokens, two of weights (32 weight rows), so that four loads serve four
// products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/avx512/packed.h"

namespace tactus::compute {
namespace {

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

inline constexpr int64_t kAmxRows = 16, kAmxRowBytes = 64, kAmxTileBytes = kAmxRows * kAmxRowBytes;
inline constexpr int64_t kAmxSlice = 2 * kAmxRows;         // weight rows of one product
inline constexpr int64_t kAmxGroupBytes = kPanelRows * 4;  // a panel's codes of one group
inline constexpr int64_t kAmxChunkColumns = 2 * kTokenBlock;

// Tiles 0 .. 3: sums [token tile][weight slice]; 4, 5: tokens; 6, 7: weights. `depth`: bytes of a token's row per
// product.
inline TileConfig ConfigOf(int64_t rows0, int64_t rows1, int64_t depth) {
  TileConfig c;
  const auto set = [&c](int tile, int64_t rows, int64_t bytes) {
    c.rows[tile] = static_cast<uint8_t>(rows);
    c.row_bytes[tile] = static_cast<uint16_t>(rows > 0 ? bytes : 0);
  };
  for (int slice = 0; slice < 2; ++slice) {
    set(slice, rows0, kAmxRowBytes);
    set(2 + slice, rows1, kAmxRowBytes);
    set(6 + slice, depth / 4, kAmxRowBytes);
  }
  set(4, rows0, depth);
  set(5, rows1, depth);
  return c;
}

inline int64_t AmxLeast(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// The memory that is read next, divided among the steps of a chunk.
struct AmxAhead {
  const std::byte* at = nullptr;  // null: unknown
  int64_t lines = 0;              // per step

  AmxAhead(const PanelRun& run, int64_t offset, int64_t bytes, int64_t steps) {
    const std::byte* panel = run.w->data + run.panel * run.w->panel_bytes;
    at = offset < run.w->panel_bytes ? panel + offset : run.next;
    lines = ((bytes + kAmxRowBytes - 1) / kAmxRowBytes + steps - 1) / steps;
  }
  __attribute__((always_inline)) void Step() {
    if (at == nullptr) return;
    for (int64_t i = 0; i < lines; ++i, at += kAmxRowBytes) __builtin_prefetch(at, 0, 2);
  }
};

}  // namespace
}  // namespace tactus::compute
