// Multiplies a panel with matrix tiles (Intel AMX), over a class Tiles of the instructions: the real ones in packed.cc,
// a software model of the manual's text in tests/compute/kernels/tile_model.h.
//
// A panel's codes have tdpbsud's layout for its second operand: row g of a tile is columns 4g .. 4g + 3 of 16 weight
// rows, 64 bytes, rows 256 bytes apart; bf16 pairs likewise for tdpbf16ps. Tokens are the first operand as stored.
// Registers: four tiles of sums, two of tokens (32 token rows), two of weights (32 weight rows), so that four loads
// serve four products.
//
// Integer codes: tiles hold one block's sums, which are exact; scales are applied between blocks, in packed/packed.h's
// order. bf16: the instruction adds 16 pairs, then adds the result to the sum. An output's chain proceeds by 32 columns
// from the row's start, the same for any number of tokens. It differs from vdpbf16ps's chain, so a set with these tiles
// uses them for every batch.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/kernels/packed/panel.h"
#include "compute/kernels/packed/scales.h"

namespace tactus::compute {
namespace {

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

inline constexpr int64_t kAmxRows = 16, kAmxRowBytes = 64;
inline constexpr int64_t kAmxGroupBytes = kPanelRows * 4;  // a panel's codes of one group

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

// One product of the 32 x 32 tile. kPair: there is a second tile of tokens.
template <class Tiles, bool kInteger, bool kPair>
inline void MultiplyTiles(const std::byte* x, int64_t x_stride, const std::byte* w, int64_t w_stride) {
  Tiles::template Load<6>(w, w_stride);
  Tiles::template Load<7>(w + kAmxRowBytes, w_stride);
  Tiles::template Load<4>(x, x_stride);
  Tiles::template Dot<kInteger, 0, 4, 6>();
  Tiles::template Dot<kInteger, 1, 4, 7>();
  if constexpr (kPair) {
    Tiles::template Load<5>(x + kAmxRows * x_stride, x_stride);
    Tiles::template Dot<kInteger, 2, 5, 6>();
    Tiles::template Dot<kInteger, 3, 5, 7>();
  }
}

template <class Tiles, bool kPair>
inline void ZeroTiles() {
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  if constexpr (kPair) {
    Tiles::template Zero<2>();
    Tiles::template Zero<3>();
  }
}

// Sums to rows of `stride` bytes: 32 weight rows each.
template <class Tiles, bool kPair>
inline void StoreTiles(void* to, int64_t stride) {
  auto* p = static_cast<std::byte*>(to);
  Tiles::template Store<0>(p, stride);
  Tiles::template Store<1>(p + kAmxRowBytes, stride);
  if constexpr (kPair) {
    Tiles::template Store<2>(p + kAmxRows * stride, stride);
    Tiles::template Store<3>(p + kAmxRows * stride + kAmxRowBytes, stride);
  }
}

// One token block's columns of a panel: codes as bytes, scales as f32.
struct AmxChunk {
  alignas(64) std::byte opened[kTokenBlock * kPanelRows];
  alignas(64) float scales[kTokenBlock / 16][kPanelRows], minima[kTokenBlock / 16][kPanelRows];
  const std::byte* codes = nullptr;  // of the first block
  int64_t codes_each = 0;            // bytes from one block's codes to the next one's
  int64_t block = 0, blocks = 0;
  int32_t zero = 0;  // v is a byte minus this
};

// 4-bit codes to bytes. zeros: [64], or null: a byte is then 4 * code + 64 - z.
inline void OpenAmxNibbles(const std::byte* codes, int64_t columns, const std::byte* zeros, std::byte* opened) {
  const auto* from = reinterpret_cast<const uint8_t*>(codes);
  auto* to = reinterpret_cast<uint8_t*>(opened);
  const int shift = zeros == nullptr ? 0 : 2;
  uint8_t centre[kAmxGroupBytes] = {};
  for (int64_t i = 0; zeros != nullptr && i < kAmxGroupBytes; ++i) {
    centre[i] = static_cast<uint8_t>(64 - static_cast<uint8_t>(zeros[i / 4]));
  }
  for (int64_t c = 0; c < columns; c += 8, from += kAmxGroupBytes, to += 2 * kAmxGroupBytes) {
    for (int64_t i = 0; i < kAmxGroupBytes; ++i) {
      to[i] = static_cast<uint8_t>(((from[i] & 0xf) << shift) + centre[i]);
      to[kAmxGroupBytes + i] = static_cast<uint8_t>(((from[i] >> 4) << shift) + centre[i]);
    }
  }
}

inline void OpenChunk(const PackedMatrix& w, int64_t panel, int64_t column, AmxChunk* out) {
  const bool u4 = w.code == PackedCode::kU4;
  out->block = w.block > 0 ? w.block : kTokenBlock;
  const int64_t code_bytes = out->block * kPanelRows / (u4 ? 2 : 1);
  const int64_t block_bytes = w.block > 0 ? w.block_bytes() : code_bytes;
  const std::byte* at = w.data + panel * w.panel_bytes + column / out->block * block_bytes;
  const int64_t left = (w.cols - column + out->block - 1) / out->block, most = kTokenBlock / out->block;
  out->blocks = left < most ? left : most;
  out->codes = u4 ? out->opened : at;
  out->codes_each = u4 ? out->block * kPanelRows : block_bytes;
  out->zero = w.has_zeros ? 64 : w.zero;
  if (w.block > 0) LoadScales(w, at + code_bytes, out->blocks, 0, out->scales[0]);
  if (w.has_minimum) LoadScales(w, at + code_bytes, out->blocks, 1, out->minima[0]);
  for (int64_t b = 0; u4 && b < out->blocks; ++b, at += block_bytes) {
    const std::byte* zeros = w.has_zeros ? at + code_bytes + kPanelRows * 2 : nullptr;
    OpenAmxNibbles(at, out->block, zeros, out->opened + b * out->codes_each);
  }
}

// Rows' upper bytes of wide groups in a chunk, zeros elsewhere.
using AmxUpper = std::byte[2 * kAmxRows][kTokenBlock];

inline void OpenUpper(const PackedTokens& x, int64_t first, int64_t rows, int64_t column, AmxUpper& out) {
  std::memset(out, 0, sizeof out);
  for (int64_t r = 0; r < rows; ++r) {
    const WideGroup* wide = x.wide + (first + r) * x.wide_count() + column / x.format.wide;
    for (int64_t c = 0; c < kTokenBlock; c += x.format.wide, ++wide) {
      std::memcpy(out[r] + c + wide->first, wide->upper, kWideColumns);
    }
  }
}

// The sums of block b of a chunk, 32 weight rows from `slices` on, for the rows with values from x on.
template <class Tiles, bool kPair>
void SumAmxBlock(const AmxChunk& chunk, int64_t b, int64_t slices, const std::byte* x, int64_t x_stride,
                 int32_t (*sums)[2 * kAmxRows]) {
  const int64_t depth = chunk.block < kAmxRowBytes ? chunk.block : kAmxRowBytes;
  const std::byte* codes = chunk.codes + b * chunk.codes_each + slices * 4;
  ZeroTiles<Tiles, kPair>();
  for (int64_t k = 0; k < chunk.block; k += depth) {
    MultiplyTiles<Tiles, true, kPair>(x + b * chunk.block + k, x_stride, codes + k / 4 * kAmxGroupBytes,
                                      kAmxGroupBytes);
  }
  StoreTiles<Tiles, kPair>(sums, sizeof sums[0]);
}

// y of packed/packed.h after block b, for one row; upper: sums of upper bytes, or null.
inline void AddAmxBlock(const PanelSums& run, const AmxChunk& chunk, int64_t b, int64_t slices, int64_t row,
                        int64_t column, const int32_t* sums, const int32_t* upper, float* y) {
  const PackedTokens& x = *run.x;
  const int64_t first = column + b * chunk.block;
  int32_t sum = 0;
  for (int64_t i = 0; i < chunk.block / 16; ++i) sum += x.sums[row * x.sum_count() + first / 16 + i];
  const float scale = x.scales[row * x.scale_count() + first / x.format.block];
  const bool scaled = run.w->block > 0;
  for (int64_t i = 0; i < 2 * kAmxRows; ++i) {
    const int32_t s = (upper != nullptr ? 256 * upper[i] : 0) + sums[i] - chunk.zero * sum;
    const auto v = static_cast<float>(s);
    y[i] = scaled ? std::fma(v * scale, chunk.scales[b][slices + i], y[i]) : std::fma(v, scale, y[i]);
  }
  if (!run.w->has_minimum) return;
  const float total = static_cast<float>(sum) * scale;
  for (int64_t i = 0; i < 2 * kAmxRows; ++i) y[i] = std::fma(chunk.minima[b][slices + i], total, y[i]);
}

// Rows [first, first + rows) of the run, at most two tiles of them.
template <class Tiles, bool kPair>
void SumIntegerTokens(const PanelSums& run, int64_t first, int64_t rows) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const bool wide = x.format.wide > 0;
  const int64_t rows0 = rows < kAmxRows ? rows : kAmxRows;
  alignas(64) int32_t sums[2 * kAmxRows][2 * kAmxRows], upper_sums[2 * kAmxRows][2 * kAmxRows];
  alignas(64) AmxUpper upper;
  AmxChunk chunk;
  const int64_t block = w.block > 0 && w.block < kAmxRowBytes ? w.block : kAmxRowBytes;
  Tiles::Configure(ConfigOf(rows0, rows - rows0, block));
  for (int64_t column = 0; column < w.cols; column += kTokenBlock) {
    OpenChunk(w, run.panel, column, &chunk);
    if (wide) OpenUpper(x, run.first + first, rows, column, upper);
    const std::byte* values = x.values + (run.first + first) * x.stride + column;
    for (int64_t slices = 0; slices < kPanelRows; slices += 2 * kAmxRows) {
      for (int64_t b = 0; b < chunk.blocks; ++b) {
        SumAmxBlock<Tiles, kPair>(chunk, b, slices, values, x.stride, sums);
        if (wide) SumAmxBlock<Tiles, kPair>(chunk, b, slices, upper[0], kTokenBlock, upper_sums);
        for (int64_t k = 0; k < rows; ++k) {
          float* y = run.sums + (first + k) * kPanelRows + slices;
          AddAmxBlock(run, chunk, b, slices, run.first + first + k, column, sums[k], wide ? upper_sums[k] : nullptr, y);
        }
      }
    }
  }
}

template <class Tiles, bool kPair>
void SumBf16Tokens(const PanelSums& run, int64_t first, int64_t tokens) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const int64_t pairs = (w.cols + 1) / 2, whole = pairs / kAmxRows * kAmxRows;
  const int64_t rows0 = tokens < kAmxRows ? tokens : kAmxRows;
  const std::byte* panel = w.data + run.panel * w.panel_bytes;
  const std::byte* values = x.values + (run.first + first) * x.stride;
  // The last pairs of a row, padded with zeros as tokens are.
  alignas(64) std::byte tail[kAmxRows * kAmxGroupBytes] = {};
  std::memcpy(tail, panel + whole * kAmxGroupBytes, static_cast<size_t>((pairs - whole) * kAmxGroupBytes));
  Tiles::Configure(ConfigOf(rows0, tokens - rows0, kAmxRowBytes));
  for (int64_t slices = 0; slices < kPanelRows; slices += 2 * kAmxRows) {
    ZeroTiles<Tiles, kPair>();
    for (int64_t p = 0; p < pairs; p += kAmxRows) {
      const std::byte* at = p < whole ? panel + p * kAmxGroupBytes : tail;
      MultiplyTiles<Tiles, false, kPair>(values + p * 4, x.stride, at + slices * 4, kAmxGroupBytes);
    }
    StoreTiles<Tiles, kPair>(run.sums + first * kPanelRows + slices, kPanelRows * 4);
  }
}

template <class Tiles>
void SumPanelByTiles(const PanelSums& run) {
  const bool bf16 = run.w->code == PackedCode::kBF16;
  constexpr int64_t kMost = 2 * kAmxRows;
  if (!bf16) std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  for (int64_t first = 0; first < run.rows; first += kMost) {
    const int64_t left = run.rows - first, rows = left < kMost ? left : kMost;
    if (rows > kAmxRows) {
      bf16 ? SumBf16Tokens<Tiles, true>(run, first, rows) : SumIntegerTokens<Tiles, true>(run, first, rows);
    } else {
      bf16 ? SumBf16Tokens<Tiles, false>(run, first, rows) : SumIntegerTokens<Tiles, false>(run, first, rows);
    }
  }
  Tiles::Release();
}

}  // namespace
}  // namespace tactus::compute
