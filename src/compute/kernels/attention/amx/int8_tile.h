// The arithmetic of attention over int8 K and V with tdpbssd and tdpbusd: scores and weighted values of up to 16 rows.
// Tiles hold the exact sums of high and of low bytes; Lanes joins them. avx512/int8.cc states the rounding of q and of
// the weights.
#pragma once

#include <cstdint>

#include "compute/kernels/attention/avx512/calls.h"
#include "compute/kernels/simd/tiles.h"

namespace tactus::compute {
namespace {

constexpr int32_t kTileQuads = 16;                              // groups of dimensions, or of positions, per product
constexpr int64_t kSumStride = kAmxRowBytes;                    // bytes from one row of a tile's sums to the next
constexpr int64_t kWeightBytes = kPartition * sizeof(int16_t);  // from one row's weights to the next; high, then low

// The sums of 16 rows and two vectors: high bytes' first.
struct alignas(64) TileSums {
  int32_t at[4][kAmxRows][kAmxRows];

  template <class Tiles>
  void Store() {
    Tiles::template Store<0>(reinterpret_cast<std::byte*>(at[0]), kSumStride);
    Tiles::template Store<1>(reinterpret_cast<std::byte*>(at[1]), kSumStride);
    Tiles::template Store<2>(reinterpret_cast<std::byte*>(at[2]), kSumStride);
    Tiles::template Store<3>(reinterpret_cast<std::byte*>(at[3]), kSumStride);
  }
};

template <class Tiles>
void ConfigureInt8(int32_t rows) {
  Tiles::Configure(ConfigOf(rows, rows, kAmxRowBytes));
}

template <class Tiles>
void ZeroSums() {
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  Tiles::template Zero<2>();
  Tiles::template Zero<3>();
}

// Four vectors of positions; call.words is a multiple of kTileQuads. A row of q: its high bytes, then its low bytes,
// half a row later. kFetch: prefetches call.ahead.
template <class Tiles, class Lanes, bool kFetch>
void ScoreInt8(const ScoreCall& call) {
  constexpr int kVecs = 4;
  TileSums sums[kVecs / 2];
  const int64_t q_stride = call.q_stride * 4, stride = call.stride * 4;
  const auto* q = reinterpret_cast<const std::byte*>(call.q);
  for (int v = 0; v < kVecs; v += 2) {
    ZeroSums<Tiles>();
    for (int32_t d = 0; d < call.words; d += kTileQuads) {
      Tiles::template Load<4>(q + d * 4, q_stride);
      Tiles::template Load<6>(reinterpret_cast<const std::byte*>(call.keys[v] + d * call.stride), stride);
      Tiles::template Dot<true, 0, 4, 6>();
      Tiles::template Load<7>(reinterpret_cast<const std::byte*>(call.keys[v + 1] + d * call.stride), stride);
      Tiles::template Dot<true, 1, 4, 7>();
      if constexpr (kFetch) {
        for (int32_t i = d; i < d + kTileQuads; ++i) {
          __builtin_prefetch(call.ahead[v] + i * kAmxRowBytes);
          __builtin_prefetch(call.ahead[v + 1] + i * kAmxRowBytes);
        }
      }
      Tiles::template Load<5>(q + q_stride / 2 + d * 4, q_stride);
      Tiles::template Dot<true, 2, 5, 6>();
      Tiles::template Dot<true, 3, 5, 7>();
    }
    sums[v / 2].template Store<Tiles>();
  }
  for (int v = 0; v < kVecs; ++v) {
    for (int32_t r = 0; r < call.rows; ++r) {
      const auto& of = sums[v / 2].at;
      Lanes::StoreScores(of[v % 2][r], of[2 + v % 2][r], call.scales[v], call.scores + r * kPartition + 16 * v);
    }
  }
}

// 64 dimensions. Whole groups of four chunks, whose rows are adjacent: those of word call.from up to that of word
// call.to - 1.
template <class Tiles, class Lanes>
void WeighInt8(const WeighCall& call) {
  constexpr int kVecs = 4, kChunks = 4;
  TileSums sums[kVecs / 2];
  const int64_t stride = call.stride * 4;
  for (int v = 0; v < kVecs; v += 2) {
    ZeroSums<Tiles>();
    for (int32_t i = call.from / kTileQuads; i * kTileQuads < call.to; ++i) {
      const auto* values = reinterpret_cast<const std::byte*>(call.chunks[kChunks * i] + call.first_dim + 16 * v);
      const auto* weights = reinterpret_cast<const std::byte*>(call.weights) + i * kAmxRowBytes;
      Tiles::template Load<4>(weights, kWeightBytes);
      Tiles::template Load<6>(values, stride);
      Tiles::template DotUnsigned<0, 4, 6>();
      Tiles::template Load<7>(values + kAmxRowBytes, stride);
      Tiles::template DotUnsigned<1, 4, 7>();
      Tiles::template Load<5>(weights + kWeightBytes / 2, kWeightBytes);
      Tiles::template DotUnsigned<2, 5, 6>();
      Tiles::template DotUnsigned<3, 5, 7>();
    }
    sums[v / 2].template Store<Tiles>();
  }
  for (int v = 0; v < kVecs; ++v) {
    for (int32_t r = 0; r < call.rows; ++r) {
      float* out = call.out + r * call.padded + call.first_dim + 16 * v;
      const auto& of = sums[v / 2].at;
      Lanes::StoreValues(of[v % 2][r], of[2 + v % 2][r], call.resume, out);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
