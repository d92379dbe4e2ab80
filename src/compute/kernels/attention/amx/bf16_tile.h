// The arithmetic of attention with tdpbf16ps: scores and weighted values of up to 32 rows. bf16.cc states the order of
// every sum. The layout of K and V in pairs (kv_layout.h) is that of the instruction's second operand.
#pragma once

#include <cstdint>

#include "compute/kernels/attention/avx512/calls.h"
#include "compute/kernels/simd/tiles.h"

namespace tactus::compute {
namespace {

constexpr int32_t kTileWords = 16;                               // pairs of dimensions per product
constexpr int32_t kChunkPairs = 8;                               // pairs of positions per product
constexpr int64_t kScoreStride = kPartition * sizeof(float);     // bytes from one row of scores to the next
constexpr int64_t kWeightStride = kPartition * sizeof(int16_t);  // and of weights

template <class T>
const std::byte* Bytes(const T* p) {
  return reinterpret_cast<const std::byte*>(p);
}

// For scores, `rows` rows at a time.
template <class Tiles>
void ConfigureScores(int32_t rows) {
  Tiles::Configure(ConfigOf(rows < kAmxRows ? rows : kAmxRows, rows > kAmxRows ? rows - kAmxRows : 0, kTileWords * 4));
}
// For weighted values.
template <class Tiles>
void ConfigureValues(int32_t rows) {
  Tiles::Configure(ConfigOf(rows < kAmxRows ? rows : kAmxRows, rows > kAmxRows ? rows - kAmxRows : 0, kChunkPairs * 4));
}

// Two vectors of positions; call.words is a multiple of kTileWords. kPair: more than 16 rows. kFetch: prefetches
// call.ahead.
template <class Tiles, bool kPair, bool kFetch>
void ScoreByTiles(const ScoreCall& call) {
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  if constexpr (kPair) Tiles::template Zero<2>(), Tiles::template Zero<3>();
  const int64_t q_stride = call.q_stride * 4, stride = call.stride * 4;
  for (int32_t d = 0; d < call.words; d += kTileWords) {
    Tiles::template Load<4>(Bytes(call.q + d), q_stride);
    Tiles::template Load<6>(Bytes(call.keys[0] + d * call.stride), stride);
    Tiles::template Dot<false, 0, 4, 6>();
    Tiles::template Load<7>(Bytes(call.keys[1] + d * call.stride), stride);
    Tiles::template Dot<false, 1, 4, 7>();
    if constexpr (kFetch) {
      for (int32_t i = d; i < d + kTileWords; ++i) {
        __builtin_prefetch(call.ahead[0] + i * kAmxRowBytes);
        __builtin_prefetch(call.ahead[1] + i * kAmxRowBytes);
      }
    }
    if constexpr (kPair) {
      Tiles::template Load<5>(Bytes(call.q + kAmxRows * call.q_stride + d), q_stride);
      Tiles::template Dot<false, 2, 5, 6>();
      Tiles::template Dot<false, 3, 5, 7>();
    }
  }
  auto* to = reinterpret_cast<std::byte*>(call.scores);
  Tiles::template Store<0>(to, kScoreStride);
  Tiles::template Store<1>(to + kAmxRowBytes, kScoreStride);
  if constexpr (kPair) {
    Tiles::template Store<2>(to + kAmxRows * kScoreStride, kScoreStride);
    Tiles::template Store<3>(to + kAmxRows * kScoreStride + kAmxRowBytes, kScoreStride);
  }
}

// 32 dimensions. Whole chunks: those of word call.from up to that of word call.to - 1.
template <class Tiles, bool kPair, bool kFetch>
void WeighByTiles(const WeighCall& call) {
  auto* out = reinterpret_cast<std::byte*>(call.out + call.first_dim);
  const int64_t out_stride = call.padded * 4, stride = call.stride * 4, lower = kAmxRows * out_stride;
  if (call.resume) {
    Tiles::template Load<0>(out, out_stride);
    Tiles::template Load<1>(out + kAmxRowBytes, out_stride);
    if constexpr (kPair) {
      Tiles::template Load<2>(out + lower, out_stride);
      Tiles::template Load<3>(out + lower + kAmxRowBytes, out_stride);
    }
  } else {
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    if constexpr (kPair) Tiles::template Zero<2>(), Tiles::template Zero<3>();
  }
  for (int32_t c = call.from / kChunkPairs; c * kChunkPairs < call.to; ++c) {
    const std::byte* values = Bytes(call.chunks[c] + call.first_dim);
    const std::byte* weights = Bytes(call.weights + 2 * kChunkPairs * c);
    Tiles::template Load<4>(weights, kWeightStride);
    Tiles::template Load<6>(values, stride);
    Tiles::template Dot<false, 0, 4, 6>();
    Tiles::template Load<7>(values + kAmxRowBytes, stride);
    Tiles::template Dot<false, 1, 4, 7>();
    if constexpr (kFetch) {
      const std::byte* ahead = call.ahead[c] + call.first_dim * 4;
      for (int32_t i = 0; i < kChunkPairs; ++i) {
        __builtin_prefetch(ahead + i * stride);
        __builtin_prefetch(ahead + i * stride + kAmxRowBytes);
      }
    }
    if constexpr (kPair) {
      Tiles::template Load<5>(weights + kAmxRows * kWeightStride, kWeightStride);
      Tiles::template Dot<false, 2, 5, 6>();
      Tiles::template Dot<false, 3, 5, 7>();
    }
  }
  Tiles::template Store<0>(out, out_stride);
  Tiles::template Store<1>(out + kAmxRowBytes, out_stride);
  if constexpr (kPair) {
    Tiles::template Store<2>(out + lower, out_stride);
    Tiles::template Store<3>(out + lower + kAmxRowBytes, out_stride);
  }
}

}  // namespace
}  // namespace tactus::compute
