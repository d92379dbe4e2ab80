// y = x * w^T, written once over simd/simd.h.
//
// Order of accumulation, the same for every number of tokens, tile and thread count: an output element has one vector
// accumulator; lane i takes the columns i, i + step, i + 2 step, ... in ascending order (the last, partial vector is
// padded with zeros); at the end the lanes are added in the fixed tree of Simd::Sum; then the bias. Passes over K of
// kLinearChunk columns store the lane sums in scratch in between, which changes no rounding.
//
// Tiles: kLinearTokens x kLinearRows accumulators. A task is a block of tokens by a range of weight rows; tasks
// of one range are neighbours, so that threads share the weights they read.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/kernel_set.h"
#include "compute/kernels/rows/row_kernel.h"
#include "compute/kernels/simd/simd.h"

namespace tactus::compute {
namespace {

// How a kernel reads x and w. kStep columns per vector.
struct PlainX {
  using X = float;
  using Vec = Simd::F;
  static constexpr int kStep = Simd::kWidth;
  static constexpr int64_t kChunk = kLinearChunk;
  static Vec LoadX(const float* p) { return Simd::Load(p); }
  static Vec LoadXTail(const float* p, int64_t n) {
    float padded[kStep] = {};
    std::memcpy(padded, p, static_cast<size_t>(n) * sizeof(float));
    return Simd::Load(padded);
  }
  static Simd::F Dot(Vec x, Vec w, Simd::F acc) { return Simd::MulAdd(x, w, acc); }
};

template <class Plain>
struct WithTail : PlainX {
  static Vec LoadW(const uint8_t* p) { return Plain::Load(p); }
  static Vec LoadWTail(const uint8_t* p, int64_t n) {
    uint8_t padded[kStep * Plain::kBytes] = {};
    std::memcpy(padded, p, static_cast<size_t>(n * Plain::kBytes));
    return Plain::Load(padded);
  }
  static constexpr int kBytes = Plain::kBytes;
};

struct F32Elements {
  static constexpr int kBytes = 4;
  static Simd::F Load(const uint8_t* p) { return Simd::Load(reinterpret_cast<const float*>(p)); }
};
struct BF16Elements {
  static constexpr int kBytes = 2;
  static Simd::F Load(const uint8_t* p) { return Simd::LoadBF16(p); }
};
struct F16Elements {
  static constexpr int kBytes = 2;
  static Simd::F Load(const uint8_t* p) { return Simd::LoadF16(p); }
};

using WeightsF32 = WithTail<F32Elements>;
using WeightsBF16 = WithTail<BF16Elements>;
using WeightsF16 = WithTail<F16Elements>;

// One tile's pass over `columns` columns. `sums` holds lane sums between passes: element (m, n) at
// (m * kLinearRowBlock + n) * kWidth.
template <class X>
struct TilePass {
  const X* x;  // this tile's, packed (see PackTokens) or rows x_stride apart
  int64_t x_stride;
  const uint8_t* w[Simd::kLinearRows];
  int64_t ahead;  // bytes from a row to the row to prefetch; 0: none
  int64_t columns;
  float* sums;
  bool first, last;
  float* y;
  int64_t y_stride;
  const float* bias;
};

// Every loop over the tile is unrolled in the source, so that the accumulators are in registers from the start.
template <class L, bool kPacked, bool kAhead, int kTokens, int kRows>
void RunTile(const TilePass<typename L::X>& t) {
  using F = Simd::F;
  F acc[kTokens][kRows];
  if (t.first) {
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kRows; ++n) acc[m][n] = Simd::Zero();
    }
  } else {
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < kRows; ++n) acc[m][n] = Simd::Load(t.sums + (m * kLinearRowBlock + n) * Simd::kWidth);
    }
  }
  const int64_t full = t.columns / L::kStep * L::kStep, rest = t.columns - full;
  const int64_t x_stride = kPacked ? L::kStep : t.x_stride, x_step = kPacked ? kTokens * L::kStep : L::kStep;
  const typename L::X* x_at = t.x;
  const auto step = [&](int64_t k, const auto& load_x, const auto& load_w) __attribute__((always_inline)) {
    typename L::Vec x[kTokens];
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) x[m] = load_x(x_at + m * x_stride);
    x_at += x_step;
#pragma GCC unroll 4
    for (int n = 0; n < kRows; ++n) {
      const uint8_t* w_at = t.w[n] + k * L::kBytes;
      if constexpr (kAhead) Simd::Prefetch(w_at + t.ahead);
      const typename L::Vec w = load_w(w_at);
#pragma GCC unroll 6
      for (int m = 0; m < kTokens; ++m) acc[m][n] = L::Dot(x[m], w, acc[m][n]);
    }
  };
  for (int64_t k = 0; k < full; k += L::kStep) step(k, L::LoadX, L::LoadW);
  if (rest > 0) {
    step(
        full, [rest](const typename L::X* p) { return L::LoadXTail(p, rest); },
        [rest](const uint8_t* p) { return L::LoadWTail(p, rest); });
  }
#pragma GCC unroll 6
  for (int m = 0; m < kTokens; ++m) {
    if (!t.last) {
#pragma GCC unroll 4
      for (int n = 0; n < kRows; ++n) Simd::Store(t.sums + (m * kLinearRowBlock + n) * Simd::kWidth, acc[m][n]);
      continue;
    }
    float sums[kRows];
    if constexpr (kRows == 4) {
      Simd::Sum4(acc[m][0], acc[m][1], acc[m][2], acc[m][3], sums);
    } else {
      sums[0] = Simd::Sum(acc[m][0]);
    }
    for (int n = 0; n < kRows; ++n) t.y[m * t.y_stride + n] = t.bias != nullptr ? sums[n] + t.bias[n] : sums[n];
  }
}

template <class L, bool kPacked, bool kAhead, int kRows>
void RunTokens(int64_t tokens, const TilePass<typename L::X>& t) {
  static_assert(Simd::kLinearTokens == 3 || Simd::kLinearTokens == 6);
  switch (tokens) {
    case 1:
      return RunTile<L, kPacked, kAhead, 1, kRows>(t);
    case 2:
      return RunTile<L, kPacked, kAhead, 2, kRows>(t);
    case 3:
      return RunTile<L, kPacked, kAhead, 3, kRows>(t);
    default:
      break;
  }
  if constexpr (Simd::kLinearTokens == 6) {
    switch (tokens) {
      case 4:
        return RunTile<L, kPacked, kAhead, 4, kRows>(t);
      case 5:
        return RunTile<L, kPacked, kAhead, 5, kRows>(t);
      case 6:
        return RunTile<L, kPacked, kAhead, 6, kRows>(t);
      default:
        break;
    }
  }
}

// Tokens per tile: all tiles are equal except the last, and none is needlessly small (8 tokens are 4 + 4, not 6 + 2).
inline int64_t TileTokens(int64_t tokens) {
  return CeilDiv(tokens, CeilDiv(tokens, Simd::kLinearTokens));
}

struct Blocking {
  int64_t tokens_per_task, token_blocks, rows_per_task, row_ranges;
};

// Affects speed only. About three million multiply-adds per task, at least four tasks per thread.
inline Blocking ChooseBlocking(int64_t tokens, int64_t rows, int64_t columns, int64_t threads) {
  Blocking b;
  b.token_blocks = CeilDiv(tokens, kLinearTokenBlock);
  b.tokens_per_task = RoundUp(CeilDiv(tokens, b.token_blocks), TileTokens(tokens));
  b.token_blocks = CeilDiv(tokens, b.tokens_per_task);
  const int64_t wanted = 3'000'000 / MaxOf(1, columns * MaxOf(b.tokens_per_task, 8));
  const int64_t share = CeilDiv(rows, 4 * threads);
  b.rows_per_task = RoundUp(MaxOf(1, MinOf(wanted, share)), kLinearRowBlock);
  b.row_ranges = CeilDiv(rows, b.rows_per_task);
  return b;
}

// Packs tokens in tiles of TileTokens, each tile's vectors side by side: [tile][column / kStep][token][kStep], zeros
// after the last column. A large batch streams through the caches in order, for any row width. The last tile may be
// smaller.
template <class L>
int64_t PackedColumns(int64_t columns) {
  return RoundUp(columns, L::kStep);
}

template <class L>
void PackTokens(ThreadPool& pool, const float* x, int64_t tokens, int64_t columns, float* packed) {
  const int64_t padded = PackedColumns<L>(columns), per_tile = TileTokens(tokens);
  pool.ParallelFor(CeilDiv(tokens, per_tile), [&](int64_t tile, int32_t) {
    const int64_t first = tile * per_tile, count = MinOf(per_tile, tokens - first);
    for (int64_t m = 0; m < count; ++m) {
      float* to = packed + first * padded + m * L::kStep;
      const float* from = x + (first + m) * columns;
      for (int64_t k = 0; k < columns; k += L::kStep, to += count * L::kStep) {
        Simd::Store(to, LoadFirst(from + k, static_cast<int>(MinOf(L::kStep, columns - k))));
      }
    }
  });
}

// L reads the weights in place, or, with `panel`, as f32 from rows dequantised into scratch.
template <class L, bool kPacked>
void RunLinear(ThreadPool& pool, const typename L::X* x, int64_t tokens, const MatrixView& w, bool panel,
               const float* bias, float* y, std::byte* thread_scratch) {
  const Blocking b = ChooseBlocking(tokens, w.rows, w.cols, pool.threads());
  const int64_t thread_bytes = LinearThreadBytes(), padded = PackedColumns<L>(w.cols);
  const int64_t per_tile = TileTokens(tokens);
  pool.ParallelFor(b.row_ranges * b.token_blocks, [&](int64_t task, int32_t thread) {
    auto* panel_rows = reinterpret_cast<float*>(thread_scratch + thread * thread_bytes);
    float* sums = panel_rows + Simd::kLinearRows * kLinearChunk;
    const int64_t token_begin = task % b.token_blocks * b.tokens_per_task;
    const int64_t token_end = MinOf(tokens, token_begin + b.tokens_per_task);
    const int64_t row_begin = task / b.token_blocks * b.rows_per_task;
    const int64_t row_end = MinOf(w.rows, row_begin + b.rows_per_task);
    // A single tile of tokens reuses no weights: each group of rows is read once, from end to end.
    const bool single = token_end - token_begin <= per_tile;
    const int64_t row_step = single ? Simd::kLinearRows : kLinearRowBlock;
    const int64_t chunk = single && !panel ? w.cols : L::kChunk;
    for (int64_t row0 = row_begin; row0 < row_end; row0 += row_step) {
      const int64_t row1 = MinOf(row_end, row0 + row_step);
      for (int64_t k = 0; k < w.cols; k += chunk) {
        const int64_t columns = MinOf(chunk, w.cols - k);
        for (int64_t n = row0, count; n < row1; n += count) {
          count = row1 - n >= Simd::kLinearRows ? Simd::kLinearRows : 1;
          TilePass<typename L::X> t;
          for (int64_t r = 0; r < count; ++r) {
            const auto* row = static_cast<const uint8_t*>(w.data) + (n + r) * w.row_bytes;
            if (panel) {
              float* to = panel_rows + r * kLinearChunk;
              DequantizeColumns(w.dtype, row, k, columns, to);
              t.w[r] = reinterpret_cast<const uint8_t*>(to);
            } else {
              t.w[r] = row + k * L::kBytes;
            }
          }
          t.columns = columns;
          t.x_stride = w.cols;
          t.first = k == 0;
          t.last = k + columns == w.cols;
          t.y_stride = w.rows;
          t.bias = bias != nullptr ? bias + n : nullptr;
          for (int64_t m = token_begin; m < token_end; m += per_tile) {
            t.x = kPacked ? x + m * padded + k * MinOf(per_tile, tokens - m) : x + m * w.cols + k;
            t.y = y + m * w.rows + n;
            t.sums = sums + ((m - token_begin) * kLinearRowBlock + (n - row0)) * Simd::kWidth;
            const int64_t tile_tokens = MinOf(per_tile, token_end - m);
            if (count != Simd::kLinearRows) {
              RunTokens<L, kPacked, false, 1>(tile_tokens, t);
            } else if (m == token_begin && !panel && n + 2 * Simd::kLinearRows <= w.rows) {
              t.ahead = Simd::kLinearRows * w.row_bytes;
              RunTokens<L, kPacked, true, Simd::kLinearRows>(tile_tokens, t);
            } else {
              RunTokens<L, kPacked, false, Simd::kLinearRows>(tile_tokens, t);
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tactus::compute
