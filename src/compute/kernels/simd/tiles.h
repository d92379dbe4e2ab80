// Intel AMX's matrix tiles: their sizes and their configuration. Code for tiles is written over a class Tiles of the
// instructions: the processor's are AmxTiles (simd/amx.h), a software model is in tests/compute/kernels/tile_model.h.
//
// Registers: four tiles of sums, two of the first operand (tokens, rows of attention), two of the second (weights, K,
// V). For bf16 they are two tiles of the first by two of the second, so that four loads serve four products. For packed
// integers tiles 0, 1 and 2, 3 belong to alternate items (packed/amx/integers.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tactus::compute {
namespace {

inline constexpr int64_t kAmxRows = 16, kAmxRowBytes = 64, kAmxTileBytes = kAmxRows * kAmxRowBytes;

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0 .. 3: sums, 0, 1 and 4 with rows0 rows, 2, 3 and 5 with rows1; 4, 5: the first operand; 6, 7: the
// second. `depth`: bytes of a row of the first operand per product.
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

}  // namespace
}  // namespace tactus::compute
