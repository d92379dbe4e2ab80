// Multiplies a panel with matrix tiles (Intel AMX), over a class Tiles of the instructions: the real ones in
// packed_amx.cc, a software model of the manual's text in tests/kernels/tile_model.h.
//
// A panel's codes lie as tdpbsud wants its second operand: row g of a tile is columns 4g .. 4g + 3 of 16 weight rows,
// 64 bytes, rows 256 bytes apart; bf16 pairs likewise for tdpbf16ps. Tokens are the first operand as they lie.
// Registers: four tiles of sums, two of tokens (32 token rows), two of weights (32 weight rows), so that four loads
// feed four products.
//
// Integer codes: tiles hold one block's sums, which are exact; scales are applied between blocks, in packed.h's order.
// bf16: the instruction adds 16 pairs by itself, then to the sum; an output's chain goes by 32 columns from the row's
// start, the same for any number of tokens, but not that of vdpbf16ps: a set that uses these tiles uses them for every
// batch.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/packed_panel.h"

namespace tactus::kernels {
namespace {

// As ldtilecfg reads it.
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

// A block of a panel, its codes as bytes and its scales as f32.
struct AmxBlock {
  alignas(64) std::byte opened[kTokenBlockMax * kPanelRows];
  alignas(64) float scales[kPanelRows], minima[kPanelRows];
  const std::byte* codes = nullptr;
};

template <class Tiles>
void OpenBlock(const PackedMatrix& w, const std::byte* at, int64_t block, AmxBlock* out) {
  out->codes = at;
  if (w.code == PackedCode::kU4) {
    const auto* from = reinterpret_cast<const uint8_t*>(at);
    auto* to = reinterpret_cast<uint8_t*>(out->opened);
    for (int64_t c = 0; c < block; c += 8, from += kAmxGroupBytes, to += 2 * kAmxGroupBytes) {
      for (int64_t i = 0; i < kAmxGroupBytes; ++i) {
        to[i] = from[i] & 0xf;
        to[kAmxGroupBytes + i] = from[i] >> 4;
      }
    }
    out->codes = out->opened;
  }
  if (w.block == 0) {
    for (float& scale : out->scales) scale = 1.0f;  // the row's own comes at the end; x_scale * 1 is x_scale
    return;
  }
  const std::byte* scales = at + w.code_bytes();
  Tiles::WidenScales(scales, w.wide_scales, out->scales);
  if (w.has_minimum) Tiles::WidenScales(scales + kPanelRows * (w.wide_scales ? 4 : 2), w.wide_scales, out->minima);
}

// What a token row brings to a block.
struct AmxTerms {
  int32_t start;
  float scale, total;
};

inline AmxTerms TermsOf(const PanelSums& run, int64_t row, int64_t column, int64_t block) {
  const PackedTokens& x = *run.x;
  int32_t sum = 0;
  for (int64_t i = 0; i < block / 16; ++i) sum += x.sums[row * x.sum_count() + column / 16 + i];
  const float scale = x.scales[row * x.scale_count() + column / x.format.block];
  return {-run.w->zero * sum, scale, scale * static_cast<float>(sum)};
}

template <class Tiles, bool kPair>
void SumIntegerRows(const PanelSums& run, int64_t first, int64_t rows) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const int64_t block = w.block > 0 ? w.block : kTokenBlockMax, depth = block < kAmxRowBytes ? block : kAmxRowBytes;
  const int64_t block_bytes = w.block > 0 ? w.block_bytes() : block * kPanelRows;
  alignas(64) int32_t sums[2 * kAmxRows][2 * kAmxRows];
  AmxBlock opened;
  const int64_t rows0 = rows < kAmxRows ? rows : kAmxRows;
  Tiles::Configure(ConfigOf(rows0, rows - rows0, depth));
  for (int64_t column = 0, b = 0; column < w.cols; column += block, ++b) {
    OpenBlock<Tiles>(w, w.data + run.panel * w.panel_bytes + b * block_bytes, block, &opened);
    const std::byte* values = x.values + (run.first_row + first) * x.stride + column;
    for (int64_t slices = 0; slices < kPanelRows; slices += 2 * kAmxRows) {
      ZeroTiles<Tiles, kPair>();
      for (int64_t k = 0; k < block; k += depth) {
        MultiplyTiles<Tiles, true, kPair>(values + k, x.stride, opened.codes + k / 4 * kAmxGroupBytes + slices * 4,
                                          kAmxGroupBytes);
      }
      StoreTiles<Tiles, kPair>(sums, sizeof sums[0]);
      for (int64_t t = 0; t < rows; ++t) {
        const AmxTerms terms = TermsOf(run, run.first_row + first + t, column, block);
        float* y = run.sums + (first + t) * kPanelRows + slices;
        for (int64_t i = 0; i < 2 * kAmxRows; ++i) {
          y[i] = std::fma(static_cast<float>(sums[t][i] + terms.start), opened.scales[slices + i] * terms.scale, y[i]);
        }
        if (!w.has_minimum) continue;
        for (int64_t i = 0; i < 2 * kAmxRows; ++i) y[i] = std::fma(opened.minima[slices + i], terms.total, y[i]);
      }
    }
  }
}

template <class Tiles, bool kPair>
void SumBf16Rows(const PanelSums& run, int64_t first, int64_t rows) {
  const PackedMatrix& w = *run.w;
  const PackedTokens& x = *run.x;
  const int64_t pairs = (w.cols + 1) / 2, whole = pairs / kAmxRows * kAmxRows;
  const int64_t rows0 = rows < kAmxRows ? rows : kAmxRows;
  const std::byte* panel = w.data + run.panel * w.panel_bytes;
  const std::byte* values = x.values + (run.first_row + first) * x.stride;
  // The last pairs of a row, with zeros after them as tokens have.
  alignas(64) std::byte tail[kAmxRows * kAmxGroupBytes] = {};
  std::memcpy(tail, panel + whole * kAmxGroupBytes, static_cast<size_t>((pairs - whole) * kAmxGroupBytes));
  Tiles::Configure(ConfigOf(rows0, rows - rows0, kAmxRowBytes));
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
  if (!bf16) std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  for (int64_t first = 0; first < run.rows; first += 2 * kAmxRows) {
    const int64_t left = run.rows - first, rows = left < 2 * kAmxRows ? left : 2 * kAmxRows;
    if (rows > kAmxRows) {
      bf16 ? SumBf16Rows<Tiles, true>(run, first, rows) : SumIntegerRows<Tiles, true>(run, first, rows);
    } else {
      bf16 ? SumBf16Rows<Tiles, false>(run, first, rows) : SumIntegerRows<Tiles, false>(run, first, rows);
    }
  }
  Tiles::Release();
}

}  // namespace
}  // namespace tactus::kernels
