// Multiplies a panel of bf16 with matrix tiles (tiles.h). A panel's pairs are in the order of the tiles, rows 256 bytes
// apart.
//
// The instruction adds 16 pairs, then adds the result to the sum. An output's chain proceeds by 32 columns from the
// row's start, the same for any number of tokens. It differs from vdpbf16ps's chain, so a set with these tiles uses
// them for every batch.
#pragma once

#include <cstring>

#include "compute/kernels/packed/amx/tiles.h"

namespace tactus::compute {
namespace {

template <class Tiles, bool kPair>
inline __attribute__((always_inline)) void MoveSums(bool store, float* sums) {
  auto* p = reinterpret_cast<std::byte*>(sums);
  constexpr int64_t kStride = kPanelRows * 4;
  if (store) {
    Tiles::template Store<0>(p, kStride);
    Tiles::template Store<1>(p + kAmxRowBytes, kStride);
    if constexpr (kPair) {
      Tiles::template Store<2>(p + kAmxRows * kStride, kStride);
      Tiles::template Store<3>(p + kAmxRows * kStride + kAmxRowBytes, kStride);
    }
    return;
  }
  Tiles::template Load<0>(p, kStride);
  Tiles::template Load<1>(p + kAmxRowBytes, kStride);
  if constexpr (kPair) {
    Tiles::template Load<2>(p + kAmxRows * kStride, kStride);
    Tiles::template Load<3>(p + kAmxRows * kStride + kAmxRowBytes, kStride);
  }
}

inline constexpr int64_t kAmxChunkPairs = 64;  // 128 columns

// Pairs [begin, end) of a panel's columns.
struct AmxPairs {
  int64_t begin, end;
  int64_t whole;  // pairs of the panel that fill tiles
  const std::byte* panel;
  const std::byte* tail;  // the rest, padded with zeros as tokens are
};

template <class Tiles, bool kPair>
void SumPairs(const PanelRun& run, const AmxPairs& pairs, int64_t first, AmxAhead* ahead) {
  const int64_t stride = run.x->stride;
  const std::byte* values = run.x->values + (run.first_row + first) * stride;
  for (int64_t slice = 0; slice < kPanelRows; slice += kAmxSlice) {
    float* sums = run.sums + first * kPanelRows + slice;
    if (pairs.begin > 0) {
      MoveSums<Tiles, kPair>(false, sums);
    } else {
      Tiles::template Zero<0>();
      Tiles::template Zero<1>();
      if constexpr (kPair) Tiles::template Zero<2>(), Tiles::template Zero<3>();
    }
    for (int64_t p = pairs.begin; p < pairs.end; p += kAmxRows) {
      const std::byte* w = (p < pairs.whole ? pairs.panel + p * kAmxGroupBytes : pairs.tail) + slice * 4;
      const std::byte* x = values + p * 4;
      Tiles::template Load<6>(w, kAmxGroupBytes);
      Tiles::template Load<4>(x, stride);
      Tiles::template Dot<false, 0, 4, 6>();
      Tiles::template Load<7>(w + kAmxRowBytes, kAmxGroupBytes);
      Tiles::template Dot<false, 1, 4, 7>();
      ahead->Step();
      if constexpr (kPair) {
        Tiles::template Load<5>(x + kAmxRows * stride, stride);
        Tiles::template Dot<false, 2, 5, 6>();
        Tiles::template Dot<false, 3, 5, 7>();
      }
    }
    MoveSums<Tiles, kPair>(true, sums);
  }
}

template <class Tiles>
void SumBf16(const PanelRun& run) {
  constexpr int64_t kRows = 2 * kAmxRows;
  const PackedMatrix& w = *run.w;
  const int64_t count = (w.cols + 1) / 2, whole = count / kAmxRows * kAmxRows;
  const int64_t full = run.rows / kRows * kRows, left = run.rows - full;
  AmxPairs pairs = {};
  pairs.whole = whole;
  pairs.panel = w.data + run.panel * w.panel_bytes;
  alignas(64) std::byte tail[kAmxRows * kAmxGroupBytes] = {};
  std::memcpy(tail, pairs.panel + whole * kAmxGroupBytes, static_cast<size_t>((count - whole) * kAmxGroupBytes));
  pairs.tail = tail;
  // A chunk's weights stay in the first-level cache while all tokens use them. Up to 32 rows need no chunks.
  const int64_t each = run.rows > kRows ? kAmxChunkPairs : count;
  const TileConfig most = ConfigOf(kAmxRows, kAmxRows, kAmxRowBytes);
  const TileConfig rest = ConfigOf(AmxLeast(left, kAmxRows), left > kAmxRows ? left - kAmxRows : 0, kAmxRowBytes);
  Tiles::Configure(full > 0 ? most : rest);
  for (int64_t begin = 0; begin < count; begin += each) {
    pairs.begin = begin;
    pairs.end = AmxLeast(count, begin + each);
    const int64_t steps = (run.rows + kRows - 1) / kRows * 2 * ((pairs.end - begin + kAmxRows - 1) / kAmxRows);
    // A panel of one chunk is read in order, which the hardware's prefetcher follows; the next one is prefetched here.
    AmxAhead ahead(run, pairs.end >= count, pairs.end * kAmxGroupBytes, (pairs.end - begin) * kAmxGroupBytes, steps);
    if (full > 0 && left > 0 && begin > 0) Tiles::Configure(most);
    for (int64_t first = 0; first < full; first += kRows) SumPairs<Tiles, true>(run, pairs, first, &ahead);
    if (left == 0) continue;
    if (full > 0) Tiles::Configure(rest);
    if (left > kAmxRows) {
      SumPairs<Tiles, true>(run, pairs, full, &ahead);
    } else {
      SumPairs<Tiles, false>(run, pairs, full, &ahead);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
