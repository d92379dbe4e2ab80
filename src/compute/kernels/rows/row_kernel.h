// Operators on one token's row or on single elements, and dequantisation, written once over simd/simd.h. A row's result
// depends on that row alone.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/kernel_set.h"
#include "compute/kernels/simd/simd.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

inline int64_t MinOf(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t MaxOf(int64_t a, int64_t b) {
  return a > b ? a : b;
}
inline int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline int64_t RoundUp(int64_t a, int64_t b) {
  return CeilDiv(a, b) * b;
}

// e^x: x = n ln 2 + r, |r| <= ln 2 / 2, a polynomial of degree 6 for e^r (relative error about 1 ulp), 2^n by the
// exponent. 0 below -87.3 (where the result would be subnormal); NaN stays NaN.
inline Simd::F Exp(Simd::F x) {
  using F = Simd::F;
  constexpr float kLow = -87.3f, kHigh = 88.0f;
  const F clamped = Simd::Max(Simd::Set1(kLow), Simd::Min(Simd::Set1(kHigh), x));
  const F n = Simd::RoundNearest(Simd::Mul(clamped, Simd::Set1(1.44269504088896341f)));
  F r = Simd::MulAdd(n, Simd::Set1(-0.693359375f), clamped);
  r = Simd::MulAdd(n, Simd::Set1(2.12194440e-4f), r);
  F p = Simd::Set1(1.0f / 720);
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f / 120));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f / 24));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f / 6));
  p = Simd::MulAdd(p, r, Simd::Set1(0.5f));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f));
  return Simd::ZeroBelow(x, kLow, Simd::ScaleByPowerOf2(p, n));
}

// Calls f(i, n) for vectors of [0, count): n == kWidth except for the last.
template <class F>
inline void ForVectors(int64_t count, F f) {
  int64_t i = 0;
  for (; i + Simd::kWidth <= count; i += Simd::kWidth) f(i, Simd::kWidth);
  if (i < count) f(i, static_cast<int>(count - i));
}

inline Simd::F LoadFirst(const float* p, int n) {
  if (n == Simd::kWidth) return Simd::Load(p);
  float padded[Simd::kWidth] = {};
  std::memcpy(padded, p, static_cast<size_t>(n) * sizeof(float));
  return Simd::Load(padded);
}

inline void StoreFirst(float* p, Simd::F v, int n) {
  if (n == Simd::kWidth) return Simd::Store(p, v);
  float padded[Simd::kWidth];
  Simd::Store(padded, v);
  std::memcpy(p, padded, static_cast<size_t>(n) * sizeof(float));
}

// Block formats with vector code. Each(p, use) passes on the 32 weights of the block at p, one vector at a time:
// use(index of the first lane, vector), indices ascending; the same bits as in dequantize.cc.
struct BlocksQ80 {
  static constexpr int kBytes = 34;
  template <class Use>
  static void Each(const uint8_t* p, Use use) {
    const Simd::F d = Simd::SpreadF16(p);
#pragma GCC unroll 8
    for (int j = 0; j < 32; j += Simd::kWidth) {
      use(j, Simd::Mul(Simd::LoadInt8(reinterpret_cast<const int8_t*>(p + 2 + j)), d));
    }
  }
};
struct BlocksQ40 {
  static constexpr int kBytes = 18;
  template <class Use>
  static void Each(const uint8_t* p, Use use) {
    const Simd::F d = Simd::SpreadF16(p), eight = Simd::Set1(8.0f);
    Simd::Nibbles(p + 2, [&](Simd::F q) { return Simd::Mul(Simd::Sub(q, eight), d); }, use);
  }
};
struct BlocksQ41 {
  static constexpr int kBytes = 20;
  template <class Use>
  static void Each(const uint8_t* p, Use use) {
    const Simd::F d = Simd::SpreadF16(p), m = Simd::SpreadF16(p + 2);
    // Two roundings, as the format defines: never a fused multiply-add.
    Simd::Nibbles(p + 4, [&](Simd::F q) { return Simd::Add(Simd::Mul(q, d), m); }, use);
  }
};

template <class Blocks>
void DequantizeBlocks(const uint8_t* row, int64_t first, int64_t columns, float* out) {
  const uint8_t* p = row + first / 32 * Blocks::kBytes;
  for (int64_t k = 0; k < columns; k += 32, p += Blocks::kBytes) {
    Blocks::Each(p, [&](int j, Simd::F w) { Simd::Store(out + k + j, w); });
  }
}

// `columns` values of a row from column `first`, both multiples of the format's block.
void DequantizeColumns(DType dtype, const uint8_t* row, int64_t first, int64_t columns, float* out) {
  switch (dtype) {
    case DType::kQ8_0:
      return DequantizeBlocks<BlocksQ80>(row, first, columns, out);
    case DType::kQ4_0:
      return DequantizeBlocks<BlocksQ40>(row, first, columns, out);
    case DType::kQ4_1:
      return DequantizeBlocks<BlocksQ41>(row, first, columns, out);
    default:
      DequantizeSpan(dtype, row + RowBytes(dtype, first), columns, out);
  }
}

void DequantizeRow(const MatrixView& w, int64_t row, float* out) {
  DequantizeColumns(w.dtype, static_cast<const uint8_t*>(w.data) + row * w.row_bytes, 0, w.cols, out);
}

// Rows per task, large enough to be worth distributing.
inline int64_t RowsPerTask(int64_t row_elements) {
  return MaxOf(1, 16384 / MaxOf(1, row_elements));
}

template <class Fn>
void ForRows(ThreadPool& pool, int64_t rows, int64_t row_elements, Fn fn) {
  const int64_t per_task = RowsPerTask(row_elements);
  pool.ParallelFor(CeilDiv(rows, per_task), [&](int64_t task, int32_t) {
    const int64_t end = MinOf(rows, (task + 1) * per_task);
    for (int64_t r = task * per_task; r < end; ++r) fn(r);
  });
}

// 1 / sqrt(mean(x^2) + eps)
inline float InverseRms(const float* row, int64_t dim, float eps) {
  Simd::F acc[4] = {Simd::Zero(), Simd::Zero(), Simd::Zero(), Simd::Zero()};
  int64_t i = 0;
  for (; i + 4 * Simd::kWidth <= dim; i += 4 * Simd::kWidth) {
    for (int j = 0; j < 4; ++j) {
      const Simd::F v = Simd::Load(row + i + j * Simd::kWidth);
      acc[j] = Simd::MulAdd(v, v, acc[j]);
    }
  }
  ForVectors(dim - i, [&](int64_t j, int n) {
    const Simd::F v = LoadFirst(row + i + j, n);
    acc[0] = Simd::MulAdd(v, v, acc[0]);
  });
  const float sum = Simd::Sum(Simd::Add(Simd::Add(acc[0], acc[1]), Simd::Add(acc[2], acc[3])));
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(dim) + eps);
}

// out may be row.
inline void NormRow(const float* row, int64_t dim, const float* weight, float eps, float* out) {
  const Simd::F inverse = Simd::Set1(InverseRms(row, dim, eps));
  ForVectors(dim, [&](int64_t j, int n) {
    const Simd::F v = Simd::Mul(LoadFirst(row + j, n), inverse);
    StoreFirst(out + j, weight != nullptr ? Simd::Mul(v, LoadFirst(weight + j, n)) : v, n);
  });
}

void RmsNorm(ThreadPool& pool, const float* x, int64_t tokens, int64_t dim, const float* weight, float eps,
             float* out) {
  ForRows(pool, tokens, dim, [&](int64_t t) { NormRow(x + t * dim, dim, weight, eps, out + t * dim); });
}

inline float SumRow(const float* row, int64_t dim, float shift, bool squares) {
  const Simd::F s = Simd::Set1(shift);
  Simd::F acc[4] = {Simd::Zero(), Simd::Zero(), Simd::Zero(), Simd::Zero()};
  int64_t turn = 0;
  ForVectors(dim, [&](int64_t i, int n) {
    Simd::F v = Simd::Sub(LoadFirst(row + i, n), s);
    if (n < Simd::kWidth) v = Simd::KeepFirst(v, n, Simd::Zero());
    Simd::F& sum = acc[turn++ % 4];
    sum = squares ? Simd::MulAdd(v, v, sum) : Simd::Add(sum, v);
  });
  return Simd::Sum(Simd::Add(Simd::Add(acc[0], acc[1]), Simd::Add(acc[2], acc[3])));
}

// The variance is that of the differences from the mean. out may be row.
inline void LayerNormRow(const float* row, int64_t dim, const float* weight, const float* bias, float eps, float* out) {
  const float mean = SumRow(row, dim, 0.0f, false) / static_cast<float>(dim);
  const float variance = SumRow(row, dim, mean, true) / static_cast<float>(dim);
  const Simd::F m = Simd::Set1(mean), inverse = Simd::Set1(1.0f / __builtin_sqrtf(variance + eps));
  ForVectors(dim, [&](int64_t j, int n) {
    Simd::F v = Simd::Mul(Simd::Sub(LoadFirst(row + j, n), m), inverse);
    if (weight != nullptr) v = Simd::Mul(v, LoadFirst(weight + j, n));
    if (bias != nullptr) v = Simd::Add(v, LoadFirst(bias + j, n));
    StoreFirst(out + j, v, n);
  });
}

void LayerNorm(ThreadPool& pool, const float* x, int64_t tokens, int64_t dim, const float* weight, const float* bias,
               float eps, float* out) {
  ForRows(pool, tokens, dim, [&](int64_t t) { LayerNormRow(x + t * dim, dim, weight, bias, eps, out + t * dim); });
}

void Embed(ThreadPool& pool, const int32_t* ids, int64_t tokens, const MatrixView& table, float* x) {
  ForRows(pool, tokens, table.cols, [&](int64_t t) { DequantizeRow(table, ids[t], x + t * table.cols); });
}

// Elementwise operators: pieces of 16384 elements.
template <class Fn>
void ForElements(ThreadPool& pool, int64_t n, Fn fn) {
  constexpr int64_t kPiece = 16384;
  pool.ParallelFor(CeilDiv(n, kPiece), [&](int64_t task, int32_t) {
    const int64_t begin = task * kPiece;
    ForVectors(MinOf(n, begin + kPiece) - begin, [&](int64_t i, int count) { fn(begin + i, count); });
  });
}

void AddTo(ThreadPool& pool, float* x, const float* y, float factor, int64_t n) {
  const Simd::F f = Simd::Set1(factor);
  ForElements(pool, n, [&](int64_t i, int count) {
    StoreFirst(x + i, Simd::MulAdd(f, LoadFirst(y + i, count), LoadFirst(x + i, count)), count);
  });
}

}  // namespace
}  // namespace tactus::compute
