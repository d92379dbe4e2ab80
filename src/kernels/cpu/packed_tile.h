// Multiplies a panel for one instruction set: included after its simd_*.h and with a class D of its integer
// instructions.
//
// A panel is read in chunks of columns that stay in the first-level cache while all token rows pass over them, in tiles
// of D::kTokens token rows by kTileVectors vectors of weight rows; memory sees every weight once. 4-bit codes are
// opened once per chunk when several tiles use them. Between chunks a tile's sums rest in PanelSums::sums.
//
// D, with vectors of D::kWidth lanes of 32 bits (a lane: four columns of one weight row):
//   Codes, Prepare(bytes)          four codes per lane, made ready once for all tokens of a tile
//   Low(bytes), High(bytes)        their nibbles
//   kTokens, kNibbleTokens         token rows of a tile, and of one that opens nibbles
//   X, kXBytes, PrepareX, LoadX    four values of a token in every lane, kXBytes of prepared memory each
//   Int, Dot, Add                  exact sums in 32 bits; or with kPartColumns > 0, which divides every block: Dot of
//   so many Part, Widen                    columns into a Part, then those added kCodeOffset                    what
//   Prepare takes off a code kOwnTile, DotTile              a way of its own to a block's sums: DotTile<kU4,
//   kTokens>(codes, x, columns, start, sums) ToFloat, MulAdd                of Int to Simd::F; a * b + c rounded once
//   Spread, LoadInt, StoreInt      of Int
// D4 is D for codes of at most 15, where an instruction set has a faster way for those; else D.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/packed_panel.h"

namespace tactus::kernels {
namespace {

inline constexpr int64_t kChunkColumns = 256, kChunkBlocks = kChunkColumns / 16;
inline constexpr int64_t kGroupBytes = kPanelRows * 4;  // 4 columns of codes of 8 bits, or 8 of 4
inline constexpr int kTileVectors = 4;
inline constexpr int kMostTileTokens = 4;

// What a tile's token rows bring to the blocks of a chunk.
struct TileTerms {
  int32_t start[kMostTileTokens][kChunkBlocks];  // (kCodeOffset - zero) * (sum of the block's values)
  float scale[kMostTileTokens][kChunkBlocks];    // of the token block
  float total[kMostTileTokens][kChunkBlocks];    // with minima: scale * (sum of the block's values)
};

// The codes and scales of a chunk, for all of its tiles.
struct ChunkOfWeights {
  const std::byte* codes;  // of the first block
  int64_t codes_each;      // bytes from one block's codes to the next one's
  int64_t blocks, block;   // how many, and columns of each
  const float* scales;     // [blocks][64]; null: the row's one scale comes at the end
  const float* minima;     // [blocks][64]; null: none
};

// sums: in and out.
template <class D, bool kU4, int kTokens, class Sum>
inline __attribute__((always_inline)) void DotColumns(const std::byte* codes, const std::byte* const (&x)[kTokens],
                                                      int64_t begin, int64_t end, Sum (&sums)[kTokens][kTileVectors]) {
  constexpr int64_t kColumnsPerByteRow = kU4 ? 8 : 4;
  for (int64_t c = begin; c < end; c += kColumnsPerByteRow) {
    const std::byte* w = codes + c / kColumnsPerByteRow * kGroupBytes;
#pragma GCC unroll 2
    for (int half = 0; half < (kU4 ? 2 : 1); ++half) {
      typename D::X xs[kTokens];
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) xs[t] = D::LoadX(x[t] + (c / 4 + half) * D::kXBytes);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        const auto bytes = D::LoadBytes(w + v * D::kWidth * 4);
        const typename D::Codes ready = D::Prepare(!kU4 ? bytes : half == 0 ? D::Low(bytes) : D::High(bytes));
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sums[t][v] = D::Dot(sums[t][v], ready, xs[t]);
      }
    }
  }
}

// total: in and out.
template <class D, bool kU4, int kTokens, class Int>
inline __attribute__((always_inline)) void DotBlock(const std::byte* codes, const std::byte* const (&x)[kTokens],
                                                    int64_t columns, Int (&total)[kTokens][kTileVectors]) {
  if constexpr (D::kPartColumns == 0) {
    DotColumns<D, kU4, kTokens>(codes, x, 0, columns, total);
  } else {
    for (int64_t begin = 0; begin < columns; begin += D::kPartColumns) {
      typename D::Part part[kTokens][kTileVectors];
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) part[t][v] = D::ZeroPart();
      }
      DotColumns<D, kU4, kTokens>(codes, x, begin, begin + D::kPartColumns, part);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) total[t][v] = D::Add(total[t][v], D::Widen(part[t][v]));
      }
    }
  }
}

// x: each token row's prepared values at the chunk; y: its sums. A block's sums go through memory, so that the loop
// that adds them up has the registers to itself.
template <class D, bool kU4, int kTokens>
__attribute__((noinline)) void RunIntTile(const ChunkOfWeights& w, const std::byte* x_first, int64_t x_stride,
                                          const TileTerms& terms, float* y_first) {
  constexpr int64_t kTileRows = kTileVectors * D::kWidth;
  alignas(64) int32_t sums[kTokens * kTileRows];
  for (int64_t r = 0; r < kPanelRows; r += kTileRows) {
    const std::byte* x[kTokens];
    for (int t = 0; t < kTokens; ++t) x[t] = x_first + t * x_stride;
    for (int64_t b = 0; b < w.blocks; ++b) {
      if constexpr (D::kOwnTile) {
        int32_t start[kTokens];
        for (int t = 0; t < kTokens; ++t) start[t] = terms.start[t][b];
        D::template DotTile<kU4, kTokens>(w.codes + b * w.codes_each + r * 4, x, w.block, start, sums);
      } else {
        typename D::Int total[kTokens][kTileVectors];
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v) total[t][v] = D::Spread(terms.start[t][b]);
        }
        DotBlock<D, kU4, kTokens>(w.codes + b * w.codes_each + r * 4, x, w.block, total);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v) D::StoreInt(sums + t * kTileRows + v * D::kWidth, total[t][v]);
        }
      }
      for (int t = 0; t < kTokens; ++t) x[t] += w.block / 4 * D::kXBytes;
      const float* w_scales = w.scales == nullptr ? nullptr : w.scales + b * kPanelRows + r;
      const float* w_minima = w.minima == nullptr ? nullptr : w.minima + b * kPanelRows + r;
#pragma GCC unroll 1
      for (int t = 0; t < kTokens; ++t) {
        const Simd::F x_scale = Simd::Set1(terms.scale[t][b]), x_total = Simd::Set1(terms.total[t][b]);
        float* y = y_first + t * kPanelRows + r;
        for (int64_t i = 0; i < kTileRows; i += D::kWidth) {
          const Simd::F scale = w_scales == nullptr ? x_scale : Simd::Mul(Simd::Load(w_scales + i), x_scale);
          Simd::F sum = D::MulAdd(D::ToFloat(D::LoadInt(sums + t * kTileRows + i)), scale, Simd::Load(y + i));
          if (w_minima != nullptr) sum = D::MulAdd(Simd::Load(w_minima + i), x_total, sum);
          Simd::Store(y + i, sum);
        }
      }
    }
  }
}

// Opening nibbles takes registers of its own.
template <class D, bool kU4>
constexpr int TokensOf() {
  return kU4 ? D::kNibbleTokens : D::kTokens;
}

template <class D, bool kU4>
void RunIntTileOf(int64_t tokens, const ChunkOfWeights& w, const std::byte* x, int64_t x_stride, const TileTerms& terms,
                  float* y) {
  static_assert(D::kNibbleTokens >= 2 && D::kTokens >= 2 && D::kTokens <= kMostTileTokens);
  if (tokens == 1) return RunIntTile<D, kU4, 1>(w, x, x_stride, terms, y);
  if (tokens == 2) return RunIntTile<D, kU4, 2>(w, x, x_stride, terms, y);
  if constexpr (TokensOf<D, kU4>() >= 3) {
    if (tokens == 3) return RunIntTile<D, kU4, 3>(w, x, x_stride, terms, y);
  }
  if constexpr (TokensOf<D, kU4>() >= 4) RunIntTile<D, kU4, 4>(w, x, x_stride, terms, y);
}

template <class D>
void FillTerms(const PackedMatrix& w, const PackedTokens& x, int64_t row, int64_t column, const ChunkOfWeights& chunk,
               int t, TileTerms* terms) {
  const int32_t* sums = x.sums + row * x.sum_count() + column / 16;
  const float* scales = x.scales + row * x.scale_count();
  for (int64_t b = 0; b < chunk.blocks; ++b) {
    int32_t sum = 0;
    for (int64_t i = 0; i < chunk.block / 16; ++i) sum += *sums++;
    const float scale = scales[(column + b * chunk.block) / x.format.block];
    terms->start[t][b] = (D::kCodeOffset - w.zero) * sum;
    terms->scale[t][b] = scale;
    terms->total[t][b] = scale * static_cast<float>(sum);
  }
}

// Scales or minima, 64 f16 or f32 at `from` per block, as f32.
inline void WidenScales(const std::byte* from, int64_t blocks, int64_t block_bytes, bool wide, float* to) {
  for (int64_t b = 0; b < blocks; ++b, from += block_bytes, to += kPanelRows) {
    if (wide) {
      std::memcpy(to, from, kPanelRows * sizeof(float));
      continue;
    }
    for (int64_t i = 0; i < kPanelRows; i += Simd::kWidth) Simd::Store(to + i, Simd::LoadF16(from + i * 2));
  }
}

template <class D>
void OpenNibbles(const std::byte* from, int64_t bytes, std::byte* to) {
  for (int64_t i = 0; i < bytes; i += kGroupBytes, to += 2 * kGroupBytes) {
    for (int64_t j = 0; j < kGroupBytes; j += 4 * D::kWidth) {
      const auto pair = D::LoadBytes(from + i + j);
      D::StoreBytes(to + j, D::Low(pair));
      D::StoreBytes(to + kGroupBytes + j, D::High(pair));
    }
  }
}

// All tiles of one chunk whose codes are bytes (kU4: nibbles). `column`: the chunk's first.
template <class D, bool kU4>
void RunChunk(const PanelSums& run, const ChunkOfWeights& chunk, int64_t column) {
  const PackedTokens& x = *run.x;
  constexpr int64_t kMost = TokensOf<D, kU4>();
  const int64_t tiles = (run.rows + kMost - 1) / kMost, columns = chunk.blocks * chunk.block;
  alignas(64) std::byte prepared[D::kPreparesX ? kMostTileTokens * kChunkColumns / 4 * D::kXBytes : 64];
  TileTerms terms;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = tile * run.rows / tiles, rows = (tile + 1) * run.rows / tiles - first;
    const std::byte* values = x.values + (run.first_row + first) * x.stride + column;
    int64_t stride = x.stride;
    for (int64_t t = 0; t < rows; ++t) {
      FillTerms<D>(*run.w, x, run.first_row + first + t, column, chunk, static_cast<int>(t), &terms);
      if constexpr (D::kPreparesX) D::PrepareX(values + t * stride, columns, prepared + t * (columns / 4 * D::kXBytes));
    }
    if constexpr (D::kPreparesX) {
      values = prepared;
      stride = columns / 4 * D::kXBytes;
    }
    RunIntTileOf<D, kU4>(rows, chunk, values, stride, terms, run.sums + first * kPanelRows);
  }
}

template <class D, class D4>
void SumPanelInt(const PanelSums& run) {
  const PackedMatrix& w = *run.w;
  const bool scaled = w.block > 0, u4 = w.code == PackedCode::kU4;
  const int64_t block = scaled ? w.block : kTokenBlockMax;
  const int64_t code_bytes = block * kPanelRows / (u4 ? 2 : 1), block_bytes = scaled ? w.block_bytes() : code_bytes;
  const int64_t blocks = (w.cols + block - 1) / block, per_chunk = kChunkColumns / block;
  const bool open = u4 && run.rows > 2 * D4::kNibbleTokens;
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  alignas(64) std::byte opened[kChunkColumns * kPanelRows];
  alignas(64) float scales[kChunkBlocks * kPanelRows], minima[kChunkBlocks * kPanelRows];
  for (int64_t b = 0; b < blocks; b += per_chunk) {
    const std::byte* at = w.data + run.panel * w.panel_bytes + b * block_bytes;
    ChunkOfWeights chunk = {};
    chunk.codes = at;
    chunk.codes_each = block_bytes;
    chunk.blocks = per_chunk < blocks - b ? per_chunk : blocks - b;
    chunk.block = block;
    if (scaled) {
      WidenScales(at + code_bytes, chunk.blocks, block_bytes, w.wide_scales, scales);
      chunk.scales = scales;
    }
    if (w.has_minimum) {
      WidenScales(at + code_bytes + kPanelRows * (w.wide_scales ? 4 : 2), chunk.blocks, block_bytes, w.wide_scales,
                  minima);
      chunk.minima = minima;
    }
    if (!u4) {
      RunChunk<D, false>(run, chunk, b * block);
    } else if (!open) {
      RunChunk<D4, true>(run, chunk, b * block);
    } else {
      for (int64_t i = 0; i < chunk.blocks; ++i)
        OpenNibbles<D>(at + i * block_bytes, code_bytes, opened + i * 2 * code_bytes);
      chunk.codes = opened;
      chunk.codes_each = 2 * code_bytes;
      RunChunk<D4, false>(run, chunk, b * block);
    }
  }
}

}  // namespace
}  // namespace tactus::kernels
