// Intel AMX's tiles: how the products of a panel (integers.h, bf16.h) configure them, and prefetch. Both are written
// over a class Tiles of the instructions and a class Lanes of 16 lanes of 32 bits: the real ones in packed.cc, software
// models in tests/compute/kernels/tile_model.h.
//
// Registers: four tiles of sums, two of tokens, two of weights. For bf16 they are two tiles of tokens by two of
// weights, so that four loads serve four products. For integers tiles 0, 1 and 2, 3 belong to alternate items
// (integers.h).
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

// Tiles 0 .. 3: sums, 0, 1 and 4 with rows0 token rows, 2, 3 and 5 with rows1; 4, 5: tokens; 6, 7: weights. `depth`:
// bytes of a token's row per product.
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

// Prefetches the memory that is read next, a share of it per step.
struct AmxAhead {
  uintptr_t at = 0;             // an address, not a pointer: it may be beyond the weights
  int64_t left = 0, lines = 0;  // in all, and per step

  // `offset`: of the panel's next chunk; last: the next one is in the panel that is probably read next.
  AmxAhead(const PanelRun& run, bool last, int64_t offset, int64_t bytes, int64_t steps) {
    const std::byte* next = last ? run.next : run.w->data + run.panel * run.w->panel_bytes + offset;
    if (next == nullptr) return;
    at = reinterpret_cast<uintptr_t>(next);
    left = (bytes + kAmxRowBytes - 1) / kAmxRowBytes;
    lines = (left + steps - 1) / steps;
  }
  __attribute__((always_inline)) void Step() {
    for (int64_t i = AmxLeast(lines, left); i > 0; --i, --left, at += kAmxRowBytes) {
      __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
    }
  }
};

}  // namespace
}  // namespace tactus::compute
