// The linear operator for block formats and few tokens: weights are decoded in registers and used at once. Same order
// and same bits as RunTile over a dequantised panel.
#pragma once

#include "compute/kernels/kernel_set.h"
#include "compute/kernels/rows/linear_kernel.h"

namespace tactus::compute {
namespace {

inline constexpr int64_t kFusedTokens = 4;

template <class Blocks, int kTokens, int kRows>
void FusedRows(const float* x, int64_t columns, const uint8_t* row, int64_t row_bytes, float* y, int64_t y_stride,
               const float* bias) {
  using F = Simd::F;
  F acc[kTokens][kRows];
#pragma GCC unroll 4
  for (int m = 0; m < kTokens; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kRows; ++n) acc[m][n] = Simd::Zero();
  }
  for (int64_t k = 0; k < columns; k += 32, row += Blocks::kBytes, x += 32) {
#pragma GCC unroll 4
    for (int n = 0; n < kRows; ++n) {
      const uint8_t* block = row + n * row_bytes;
      Simd::Prefetch(block + kRows * row_bytes);
      Blocks::Each(block, [&](int j, F w) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int m = 0; m < kTokens; ++m) acc[m][n] = Simd::MulAdd(Simd::Load(x + m * columns + j), w, acc[m][n]);
      });
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < kTokens; ++m) {
    float sums[kRows];
    if constexpr (kRows == 4) {
      Simd::Sum4(acc[m][0], acc[m][1], acc[m][2], acc[m][3], sums);
    } else {
      sums[0] = Simd::Sum(acc[m][0]);
    }
    for (int n = 0; n < kRows; ++n) y[m * y_stride + n] = bias != nullptr ? sums[n] + bias[n] : sums[n];
  }
}

template <class Blocks, int kTokens>
void RunFused(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y) {
  const Blocking b = ChooseBlocking(kTokens, w.rows, w.cols, pool.threads());
  pool.ParallelFor(b.row_ranges, [&](int64_t task, int32_t) {
    const int64_t end = MinOf(w.rows, (task + 1) * b.rows_per_task);
    int64_t n = task * b.rows_per_task;
    const auto* data = static_cast<const uint8_t*>(w.data);
    for (; n + 4 <= end; n += 4) {
      FusedRows<Blocks, kTokens, 4>(x, w.cols, data + n * w.row_bytes, w.row_bytes, y + n, w.rows,
                                    bias != nullptr ? bias + n : nullptr);
    }
    for (; n < end; ++n) {
      FusedRows<Blocks, kTokens, 1>(x, w.cols, data + n * w.row_bytes, w.row_bytes, y + n, w.rows,
                                    bias != nullptr ? bias + n : nullptr);
    }
  });
}

// False: too many tokens.
template <class Blocks>
bool TryFused(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y) {
  static_assert(kFusedTokens == 4);
  switch (tokens) {
    case 1:
      RunFused<Blocks, 1>(pool, x, w, bias, y);
      return true;
    case 2:
      RunFused<Blocks, 2>(pool, x, w, bias, y);
      return true;
    case 3:
      RunFused<Blocks, 3>(pool, x, w, bias, y);
      return true;
    case 4:
      RunFused<Blocks, 4>(pool, x, w, bias, y);
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace tactus::compute
