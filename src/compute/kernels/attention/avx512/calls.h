// Arguments of a tile's loops (tiles.h), for any format of K and V.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/kernel_set.h"

namespace tactus::compute {
namespace {

// A few rows against a few vectors of 16 positions; a word is a group of elements (KvGroup).
struct ScoreCall {
  int32_t rows;
  const uint32_t* q;  // words, rows q_stride apart
  int64_t q_stride;
  const int32_t* q_offset;      // int8: start values of each row's sums
  const uint32_t* const* keys;  // per vector: words of the first dimensions, the next `stride` later
  int64_t stride;
  int32_t words;                  // per position
  const float* const* scales;     // int8: of each vector's positions
  const std::byte* const* ahead;  // per vector: addresses to prefetch, one line per line read
  float* scores;                  // [row * kPartition + 16 vector + lane]
};

// A few rows' weights of words [from, to) times their values, ascending, for the dimensions from first_dim on.
struct WeighCall {
  int32_t rows;
  const uint16_t* weights;        // rows kPartition apart
  const uint32_t* const* chunks;  // word i is at chunks[i / n] + i % n * stride, n words to a chunk of 16 positions
  int32_t from, to;
  int64_t stride, first_dim;
  bool resume;                    // adds to the stored sums
  const std::byte* const* ahead;  // as in ScoreCall, per chunk
  float* out;                     // rows `padded` apart; int8: the sums as int32
  int64_t padded;
};

using ScoreFn = void (*)(const ScoreCall&);
using WeighFn = void (*)(const WeighCall&);

}  // namespace
}  // namespace tactus::compute
