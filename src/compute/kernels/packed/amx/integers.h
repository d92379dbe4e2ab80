// Multiplies a panel of integer codes with matrix tiles (tiles.h).
//
// A chunk's codes are stored as signed bytes in the order of the tiles, 1 KiB of which are one operand. Tiles hold the
// sums of one block, which are exact; scales are applied between blocks, in packed/packed.h's order. The second tile of
// tokens has 16 more token rows, or with wide groups the upper bytes of the same 16.
//
// The tiles' unit and the vector units work at the same time only if their instructions alternate: a tile instruction
// waits for a free tile register, and everything after it waits too. So a few rows of the last sums are scaled after
// each product and each store.
#pragma once

#include <cstring>

#include "compute/kernels/packed/amx/tiles.h"
#include "compute/kernels/packed/scales.h"

namespace tactus::compute {
namespace {

enum class AmxScales : uint8_t { kNone, kScale, kMinimum };  // block == 0; scales; scales and minima

// Up to two token blocks of a panel.
struct AmxChunk {
  alignas(64) std::byte codes[kAmxChunkColumns * kPanelRows];  // v: [block][slice of 16 rows][columns / 4][16][4]
  alignas(64) float scales[kAmxChunkColumns / 16][kPanelRows], minima[kAmxChunkColumns / 16][kPanelRows];
  int64_t column = 0, block = 0, blocks = 0;
};

// One block's codes to v. zeros: [64] zero points, or null.
template <class Lanes, bool kU4>
inline void OpenBlock(const PackedMatrix& w, const std::byte* from, const std::byte* zeros, int64_t block,
                      std::byte* to) {
  typename Lanes::Bytes centres[4];
  for (int64_t s = 0; s < 4; ++s) {
    centres[s] = zeros != nullptr ? Lanes::FourTimes(zeros + 16 * s) : Lanes::Spread(static_cast<int8_t>(w.zero));
  }
  for (int64_t g = 0; g < block / 4; g += kU4 ? 2 : 1, from += kAmxGroupBytes) {
#pragma GCC unroll 4
    for (int64_t s = 0; s < 4; ++s) {
      const auto bytes = Lanes::LoadBytes(from + s * kAmxRowBytes);
      std::byte* row = to + (s * (block / 4) + g) * kAmxRowBytes;
      if constexpr (!kU4) {
        Lanes::StoreBytes(row, Lanes::SubBytes(bytes, centres[s]));
      } else {
        auto low = Lanes::LowNibbles(bytes), high = Lanes::HighNibbles(bytes);
        if (zeros != nullptr) low = Lanes::TimesFour(low), high = Lanes::TimesFour(high);
        Lanes::StoreBytes(row, Lanes::SubBytes(low, centres[s]));
        Lanes::StoreBytes(row + kAmxRowBytes, Lanes::SubBytes(high, centres[s]));
      }
    }
  }
}

template <class Lanes>
inline void OpenChunk(const PanelRun& run, int64_t column, AmxChunk* out) {
  const PackedMatrix& w = *run.w;
  const bool u4 = w.code == PackedCode::kU4;
  out->column = column;
  out->block = w.block > 0 ? w.block : kTokenBlock;
  const int64_t code_bytes = out->block * kPanelRows / (u4 ? 2 : 1);
  const int64_t block_bytes = w.block > 0 ? w.block_bytes() : code_bytes;
  const int64_t first = column / out->block, end = (w.cols + out->block - 1) / out->block;
  out->blocks = AmxLeast(end - first, kAmxChunkColumns / out->block);
  const std::byte* at = w.data + run.panel * w.panel_bytes + first * block_bytes;
  const int64_t together = kTokenBlock / out->block;  // blocks under one nested scale
  for (int64_t b = 0; b < out->blocks && w.block > 0; b += together) {
    const std::byte* tail = at + b * block_bytes + code_bytes;
    const int64_t count = AmxLeast(together, out->blocks - b);
    LoadScales(w, tail, count, 0, out->scales[b]);
    if (w.has_minimum) LoadScales(w, tail, count, 1, out->minima[b]);
  }
  for (int64_t b = 0; b < out->blocks; ++b, at += block_bytes) {
    std::byte* to = out->codes + b * out->block * kPanelRows;
    const std::byte* zeros = w.has_zeros ? at + code_bytes + kPanelRows * 2 : nullptr;
    u4 ? OpenBlock<Lanes, true>(w, at, zeros, out->block, to) : OpenBlock<Lanes, false>(w, at, zeros, out->block, to);
  }
}

using AmxSums = int32_t[2 * kAmxRows][kAmxSlice];  // of 32 token rows; wide: of 16, then of their upper bytes

// The sums of a block that have not been added to y.
struct AmxSummed {
  const AmxSums* sums = nullptr;
  const float *scales = nullptr, *minima = nullptr;    // [32]
  const float *x_scale = nullptr, *x_total = nullptr;  // of the first row
  int64_t term_stride = 0;
  float* y = nullptr;
};

// y of packed/packed.h after a block, for kRows token rows from `first` on.
template <class Lanes, bool kWide, AmxScales kScales, int kRows>
inline __attribute__((always_inline)) void ScaleRows(const AmxSummed& block, int64_t first) {
  typename Lanes::F scale[2], minimum[2];
  for (int h = 0; h < 2; ++h) {
    if constexpr (kScales != AmxScales::kNone) scale[h] = Lanes::Load(block.scales + 16 * h);
    if constexpr (kScales == AmxScales::kMinimum) minimum[h] = Lanes::Load(block.minima + 16 * h);
  }
#pragma GCC unroll 4
  for (int64_t row = first; row < first + kRows; ++row) {
    const int32_t* sums = (*block.sums)[row];
    const auto x_scale = Lanes::Set1(block.x_scale[row * block.term_stride]);
    float* y = block.y + row * kPanelRows;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      auto sum = Lanes::LoadInt(sums + 16 * h);
      if constexpr (kWide) {
        sum = Lanes::AddInt(sum, Lanes::ShiftLeft8(Lanes::LoadInt(sums + kAmxRows * kAmxSlice + 16 * h)));
      }
      auto next = Lanes::Load(y + 16 * h);
      if constexpr (kScales == AmxScales::kNone) {
        next = Lanes::MulAdd(Lanes::ToFloat(sum), x_scale, next);
      } else {
        next = Lanes::MulAdd(Lanes::Mul(Lanes::ToFloat(sum), x_scale), scale[h], next);
      }
      if constexpr (kScales == AmxScales::kMinimum) {
        next = Lanes::MulAdd(minimum[h], Lanes::Set1(block.x_total[row * block.term_stride]), next);
      }
      Lanes::Store(y + 16 * h, next);
    }
  }
}

// The operands of block b for the token rows from `first` of the run on, and weight rows from `slice` on.
struct AmxBlock {
  const std::byte *codes[2], *x[2];

  AmxBlock(const AmxChunk& chunk, const PanelRun& run, bool wide, int64_t first, int64_t slice, int64_t b) {
    const PackedTokens& tokens = *run.x;
    const int64_t at = (run.first_row + first) * tokens.stride + chunk.column + b * chunk.block;
    codes[0] = chunk.codes + (b * kPanelRows + slice) * chunk.block;
    codes[1] = codes[0] + kAmxRows * chunk.block;
    x[0] = tokens.values + at;
    x[1] = wide ? run.terms.upper + at : x[0] + kAmxRows * tokens.stride;
  }
};

inline AmxSummed SummedBlock(const AmxChunk& chunk, const PanelRun& run, int64_t first, int64_t slice, int64_t b,
                             const AmxSums* sums) {
  AmxSummed done;
  const int64_t term = (run.first_row + first) * run.terms.stride + chunk.column / chunk.block + b;
  done.sums = sums;
  done.scales = chunk.scales[b] + slice;
  done.minima = chunk.minima[b] + slice;
  done.x_scale = run.terms.scale + term;
  if (run.terms.total != nullptr) done.x_total = run.terms.total + term;
  done.term_stride = run.terms.stride;
  done.y = run.sums + first * kPanelRows + slice;
  return done;
}

// The chunk's products with the first `rows` rows of the run, a multiple of 32, or of 16 with wide groups. kSteps:
// products per block.
template <class Tiles, class Lanes, int kSteps, bool kWide, AmxScales kScales>
void SumWholeTiles(const AmxChunk& chunk, const PanelRun& run, int64_t rows, AmxAhead ahead) {
  constexpr int64_t kRows = kWide ? kAmxRows : 2 * kAmxRows;
  constexpr int kPieces = kSteps == 1 ? 8 : 4 * kSteps, kEach = kRows / kPieces;
  static_assert(kEach * kPieces == kRows);
  alignas(64) AmxSums sums[2];
  AmxSummed last;
  const auto scale = [&last](int piece) __attribute__((always_inline)) {
    if (last.y != nullptr) ScaleRows<Lanes, kWide, kScales, kEach>(last, piece * kEach);
  };
  int turn = 0;
  for (int64_t first = 0; first < rows; first += kRows) {
    for (int64_t slice = 0; slice < kPanelRows; slice += kAmxSlice) {
      for (int64_t b = 0; b < chunk.blocks; ++b, turn ^= 1) {
        const AmxBlock at(chunk, run, kWide, first, slice, b);
        Tiles::template Zero<0>();
        Tiles::template Zero<1>();
        Tiles::template Zero<2>();
        Tiles::template Zero<3>();
#pragma GCC unroll 2
        for (int k = 0; k < kSteps; ++k) {
          Tiles::template Load<6>(at.codes[0] + k * kAmxTileBytes, kAmxRowBytes);
          Tiles::template Load<4>(at.x[0] + k * kAmxRowBytes, run.x->stride);
          Tiles::template Dot<true, 0, 4, 6>();
          scale(4 * k);
          Tiles::template Load<7>(at.codes[1] + k * kAmxTileBytes, kAmxRowBytes);
          Tiles::template Dot<true, 1, 4, 7>();
          scale(4 * k + 1);
          Tiles::template Load<5>(at.x[1] + k * kAmxRowBytes, run.x->stride);
          Tiles::template Dot<true, 2, 5, 6>();
          scale(4 * k + 2);
          Tiles::template Dot<true, 3, 5, 7>();
          scale(4 * k + 3);
        }
        ahead.Step();
        auto* to = reinterpret_cast<std::byte*>(sums[turn]);
        constexpr int64_t kStride = kAmxSlice * 4;
        Tiles::template Store<0>(to, kStride);
        if constexpr (kSteps == 1) scale(4);
        Tiles::template Store<1>(to + kAmxRowBytes, kStride);
        if constexpr (kSteps == 1) scale(5);
        Tiles::template Store<2>(to + kAmxRows * kStride, kStride);
        if constexpr (kSteps == 1) scale(6);
        Tiles::template Store<3>(to + kAmxRows * kStride + kAmxRowBytes, kStride);
        if constexpr (kSteps == 1) scale(7);
        last = SummedBlock(chunk, run, first, slice, b, &sums[turn]);
      }
    }
  }
#pragma GCC unroll 1
  for (int piece = 0; piece < kPieces; ++piece) scale(piece);
}

// The same for fewer rows than that, the run's from `first` on; rows1: of the second tile.
template <class Tiles, class Lanes, int kSteps, bool kWide, AmxScales kScales>
void SumPartOfTiles(const AmxChunk& chunk, const PanelRun& run, int64_t first, int64_t rows, bool pair,
                    AmxAhead ahead) {
  alignas(64) AmxSums sums;
  auto* to = reinterpret_cast<std::byte*>(sums);
  constexpr int64_t kStride = kAmxSlice * 4;
  for (int64_t slice = 0; slice < kPanelRows; slice += kAmxSlice) {
    for (int64_t b = 0; b < chunk.blocks; ++b) {
      const AmxBlock at(chunk, run, kWide, first, slice, b);
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      if (pair) Tiles::template Zero<2>(), Tiles::template Zero<3>();
      for (int k = 0; k < kSteps; ++k) {
        Tiles::template Load<6>(at.codes[0] + k * kAmxTileBytes, kAmxRowBytes);
        Tiles::template Load<4>(at.x[0] + k * kAmxRowBytes, run.x->stride);
        Tiles::template Dot<true, 0, 4, 6>();
        Tiles::template Load<7>(at.codes[1] + k * kAmxTileBytes, kAmxRowBytes);
        Tiles::template Dot<true, 1, 4, 7>();
        if (!pair) continue;
        Tiles::template Load<5>(at.x[1] + k * kAmxRowBytes, run.x->stride);
        Tiles::template Dot<true, 2, 5, 6>();
        Tiles::template Dot<true, 3, 5, 7>();
      }
      ahead.Step();
      Tiles::template Store<0>(to, kStride);
      Tiles::template Store<1>(to + kAmxRowBytes, kStride);
      if (pair) {
        Tiles::template Store<2>(to + kAmxRows * kStride, kStride);
        Tiles::template Store<3>(to + kAmxRows * kStride + kAmxRowBytes, kStride);
      }
      const AmxSummed done = SummedBlock(chunk, run, first, slice, b, &sums);
      for (int64_t row = 0; row < rows; ++row) ScaleRows<Lanes, kWide, kScales, 1>(done, row);
    }
  }
}

template <class Tiles, class Lanes, int kSteps, bool kWide, AmxScales kScales>
void SumIntegers(const PanelRun& run) {
  const PackedMatrix& w = *run.w;
  constexpr int64_t kRows = kWide ? kAmxRows : 2 * kAmxRows;
  const int64_t whole = run.rows / kRows * kRows, left = run.rows - whole;
  const int64_t left0 = AmxLeast(left, kAmxRows), left1 = kWide ? left0 : left - left0;
  const int64_t block = w.block > 0 ? w.block : kTokenBlock, depth = AmxLeast(block, kAmxRowBytes);
  const int64_t bytes = block * kPanelRows / (w.code == PackedCode::kU4 ? 2 : 1);
  const int64_t column_bytes = (w.block > 0 ? w.block_bytes() : bytes) / block;  // about, with the scales
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  AmxChunk chunk;
  const TileConfig full = ConfigOf(kAmxRows, kAmxRows, depth), part = ConfigOf(left0, left1, depth);
  Tiles::Configure(whole > 0 ? full : part);
  for (int64_t column = 0; column < w.cols; column += kAmxChunkColumns) {
    OpenChunk<Lanes>(run, column, &chunk);
    const int64_t tiles = (run.rows + kRows - 1) / kRows;
    AmxAhead ahead(run, (column + kAmxChunkColumns) * column_bytes, kAmxChunkColumns * column_bytes,
                   tiles * (kPanelRows / kAmxSlice) * chunk.blocks);
    if (whole > 0) {
      if (left > 0 && column > 0) Tiles::Configure(full);
      SumWholeTiles<Tiles, Lanes, kSteps, kWide, kScales>(chunk, run, whole, ahead);
    }
    if (left == 0) continue;
    if (whole > 0) Tiles::Configure(part);
    if (whole > 0) ahead.at = nullptr;
    SumPartOfTiles<Tiles, Lanes, kSteps, kWide, kScales>(chunk, run, whole, left, left1 > 0, ahead);
  }
}

template <class Tiles, class Lanes, int kSteps, bool kWide>
void SumScaled(const PanelRun& run) {
  if (run.w->block == 0) return SumIntegers<Tiles, Lanes, kSteps, kWide, AmxScales::kNone>(run);
  if (run.w->has_minimum) return SumIntegers<Tiles, Lanes, kSteps, kWide, AmxScales::kMinimum>(run);
  SumIntegers<Tiles, Lanes, kSteps, kWide, AmxScales::kScale>(run);
}

}  // namespace
}  // namespace tactus::compute
