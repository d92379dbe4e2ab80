// Multiplies a panel of integer codes with matrix tiles (tiles.h).
//
// A chunk's codes are stored as signed bytes in the order of the tiles, 1 KiB of which are one operand. Tiles hold the
// sums of one block, which are exact; scales are applied between blocks, in packed/packed.h's order.
//
// The tiles' unit and the vector units work at the same time only if their instructions alternate: a tile instruction
// waits for a free tile register, and everything after it waits too. So sums are stored one item after they are
// complete, and a few rows of older sums are scaled after each product, and after each store if a block is one product.
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

// An item: the sums of one block, of 16 token rows by 32 weight rows, or with wide groups by 16, of the values and of
// their upper bytes beside each other.
using AmxSums = int32_t[kAmxRows][2 * kAmxRows];

struct AmxItem {
  const std::byte* codes[2] = {};                      // of two slices; wide: of one
  const std::byte* x[2] = {};                          // values; upper bytes
  const float *scales = nullptr, *minima = nullptr;    // of the weight rows
  const float *x_scale = nullptr, *x_total = nullptr;  // of the first token row
  float* y = nullptr;

  AmxItem() = default;
  AmxItem(const AmxChunk& chunk, const PanelRun& run, int64_t first, int64_t slice, int64_t b) {
    const PackedTokens& tokens = *run.x;
    const int64_t row = run.first_row + first, at = row * tokens.stride + chunk.column + b * chunk.block;
    const int64_t term = row * run.terms.stride + chunk.column / chunk.block + b;
    codes[0] = chunk.codes + (b * kPanelRows + slice) * chunk.block;
    codes[1] = codes[0] + kAmxRows * chunk.block;
    x[0] = tokens.values + at;
    x[1] = run.terms.upper != nullptr ? run.terms.upper + at : nullptr;
    scales = chunk.scales[b] + slice;
    minima = chunk.minima[b] + slice;
    x_scale = run.terms.scale + term;
    x_total = run.terms.total != nullptr ? run.terms.total + term : nullptr;
    y = run.sums + first * kPanelRows + slice;
  }
};

// y of packed/packed.h after an item's block, for kRows token rows from `first` on.
template <class Lanes, bool kWide, AmxScales kScales, int kRows>
inline __attribute__((always_inline)) void ScaleRows(const AmxItem& item, const AmxSums& sums, int64_t term_stride,
                                                     int64_t first) {
  constexpr int kVectors = kWide ? 1 : 2;
  typename Lanes::F scale[kVectors], minimum[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    if constexpr (kScales != AmxScales::kNone) scale[v] = Lanes::Load(item.scales + 16 * v);
    if constexpr (kScales == AmxScales::kMinimum) minimum[v] = Lanes::Load(item.minima + 16 * v);
  }
#pragma GCC unroll 4
  for (int64_t row = first; row < first + kRows; ++row) {
    const auto x_scale = Lanes::Set1(item.x_scale[row * term_stride]);
    float* y = item.y + row * kPanelRows;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      auto sum = Lanes::LoadInt(sums[row] + 16 * v);
      if constexpr (kWide) sum = Lanes::AddInt(sum, Lanes::ShiftLeft8(Lanes::LoadInt(sums[row] + kAmxRows)));
      auto next = Lanes::Load(y + 16 * v);
      if constexpr (kScales == AmxScales::kNone) {
        next = Lanes::MulAdd(Lanes::ToFloat(sum), x_scale, next);
      } else {
        next = Lanes::MulAdd(Lanes::Mul(Lanes::ToFloat(sum), x_scale), scale[v], next);
      }
      if constexpr (kScales == AmxScales::kMinimum) {
        next = Lanes::MulAdd(minimum[v], Lanes::Set1(item.x_total[row * term_stride]), next);
      }
      Lanes::Store(y + 16 * v, next);
    }
  }
}

// Multiplies items one after the other. While one is multiplied, the sums of the one before it are stored, and those of
// the one before that are scaled. Items alternate between tiles 0, 1 and tiles 2, 3.
template <class Tiles, class Lanes, int kSteps, bool kWide, AmxScales kScales>
class AmxItems {
 public:
  AmxItems(int64_t x_stride, int64_t term_stride, int64_t rows, AmxSums* sums)
      : sums_(sums), x_stride_(x_stride), term_stride_(term_stride), rows_(rows) {}

  __attribute__((always_inline)) void Add(const AmxItem& item, AmxAhead* ahead) {
    turn_ == 0 ? AddTo<0>(item, ahead) : AddTo<1>(item, ahead);
    turn_ ^= 1;
  }
  // After the last one.
  __attribute__((always_inline)) void Finish() {
    if (turn_ == 0) {
      FinishFrom<0>();
    } else {
      FinishFrom<1>();
    }
  }

 private:
  static constexpr int kPiece = 4;  // rows that are scaled between two tile instructions

  template <int kTurn>
  __attribute__((always_inline)) void AddTo(const AmxItem& item, AmxAhead* ahead) {
    constexpr int kFirst = 2 * kTurn;
    const AmxSums& from = sums_[kTurn ^ 1];
    Tiles::template Zero<kFirst>();
    Tiles::template Zero<kFirst + 1>();
#pragma GCC unroll 2
    for (int k = 0; k < kSteps; ++k) {
      Tiles::template Load<6>(item.codes[0] + k * kAmxTileBytes, kAmxRowBytes);
      Tiles::template Load<4>(item.x[0] + k * kAmxRowBytes, x_stride_);
      Tiles::template Dot<true, kFirst, 4, 6>();
      Scale(2 * k, from);
      if constexpr (kWide) {
        Tiles::template Load<5>(item.x[1] + k * kAmxRowBytes, x_stride_);
        Tiles::template Dot<true, kFirst + 1, 5, 6>();
      } else {
        Tiles::template Load<7>(item.codes[1] + k * kAmxTileBytes, kAmxRowBytes);
        Tiles::template Dot<true, kFirst + 1, 4, 7>();
      }
      Scale(2 * k + 1, from);
    }
    ahead->Step();
    Store<kTurn ^ 1, 0>();
    if constexpr (kSteps == 1) Scale(2, from);
    Store<kTurn ^ 1, 1>();
    if constexpr (kSteps == 1) Scale(3, from);
    to_scale_ = to_store_;
    to_store_ = item;
  }
  template <int kTurn>  // the next item's
  __attribute__((always_inline)) void FinishFrom() {
    for (int piece = 0; piece < kAmxRows / kPiece; ++piece) Scale(piece, sums_[kTurn ^ 1]);
    Store<kTurn ^ 1, 0>();
    Store<kTurn ^ 1, 1>();
    to_scale_ = to_store_;
    for (int piece = 0; piece < kAmxRows / kPiece; ++piece) Scale(piece, sums_[kTurn]);
  }
  // Sums of the turn's tiles go to the other turn's memory, whose sums have been scaled by then.
  template <int kTurn, int kHalf>
  __attribute__((always_inline)) void Store() {
    auto* to = reinterpret_cast<std::byte*>(sums_[kTurn ^ 1]);
    Tiles::template Store<2 * kTurn + kHalf>(to + kHalf * kAmxRowBytes, sizeof(sums_[0][0]));
  }
  __attribute__((always_inline)) void Scale(int piece, const AmxSums& sums) {
    if (to_scale_.y == nullptr) return;
    const int64_t first = piece * kPiece;
    if (rows_ == kAmxRows) return ScaleRows<Lanes, kWide, kScales, kPiece>(to_scale_, sums, term_stride_, first);
    for (int64_t row = first; row < AmxLeast(first + kPiece, rows_); ++row) {
      ScaleRows<Lanes, kWide, kScales, 1>(to_scale_, sums, term_stride_, row);
    }
  }

  AmxSums* const sums_;
  AmxItem to_store_, to_scale_;
  const int64_t x_stride_, term_stride_, rows_;
  int turn_ = 0;
};

// The chunk's products with token rows [first, end) of the run in tiles of `rows`, which divides them.
template <class Tiles, class Lanes, int kSteps, bool kWide, AmxScales kScales>
void SumTiles(const AmxChunk& chunk, const PanelRun& run, int64_t first, int64_t end, int64_t rows, AmxAhead* ahead) {
  alignas(64) AmxSums sums[2];
  AmxItems<Tiles, Lanes, kSteps, kWide, kScales> items(run.x->stride, run.terms.stride, rows, sums);
  for (; first < end; first += rows) {
    for (int64_t slice = 0; slice < kPanelRows; slice += (kWide ? 1 : 2) * kAmxRows) {
      for (int64_t b = 0; b < chunk.blocks; ++b) items.Add(AmxItem(chunk, run, first, slice, b), ahead);
    }
  }
  items.Finish();
}

template <class Tiles, class Lanes, int kSteps, bool kWide, AmxScales kScales>
void SumIntegers(const PanelRun& run) {
  const PackedMatrix& w = *run.w;
  const int64_t whole = run.rows / kAmxRows * kAmxRows, left = run.rows - whole;
  const int64_t block = w.block > 0 ? w.block : kTokenBlock, depth = AmxLeast(block, kAmxRowBytes);
  const int64_t bytes = block * kPanelRows / (w.code == PackedCode::kU4 ? 2 : 1);
  const int64_t column_bytes = (w.block > 0 ? w.block_bytes() : bytes) / block;  // about, with the scales
  std::memset(run.sums, 0, static_cast<size_t>(run.rows * kPanelRows) * sizeof(float));
  AmxChunk chunk;
  const TileConfig full = ConfigOf(kAmxRows, kAmxRows, depth), part = ConfigOf(left, left, depth);
  Tiles::Configure(whole > 0 ? full : part);
  for (int64_t column = 0; column < w.cols; column += kAmxChunkColumns) {
    OpenChunk<Lanes>(run, column, &chunk);
    const int64_t tiles = (run.rows + kAmxRows - 1) / kAmxRows;
    AmxAhead ahead(run, column + kAmxChunkColumns >= w.cols, (column + kAmxChunkColumns) * column_bytes,
                   kAmxChunkColumns * column_bytes, tiles * (kPanelRows / kAmxRows) / (kWide ? 1 : 2) * chunk.blocks);
    if (whole > 0 && left > 0 && column > 0) Tiles::Configure(full);
    if (whole > 0) SumTiles<Tiles, Lanes, kSteps, kWide, kScales>(chunk, run, 0, whole, kAmxRows, &ahead);
    if (left == 0) continue;
    if (whole > 0) Tiles::Configure(part);
    SumTiles<Tiles, Lanes, kSteps, kWide, kScales>(chunk, run, whole, run.rows, left, &ahead);
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
