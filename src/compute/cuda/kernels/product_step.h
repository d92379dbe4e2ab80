// Sums of a warp over kStep columns, by mma.sync m16n8k16 with w as the first operand.
//
// An instruction adds 16 products whose places are free, as long as both operands agree. So a lane holds kRun
// successive columns of a line (a row of w or of x), which it reads with few loads and no shuffle: of 64 columns it has
// those of ColumnOf. The lines of lane l are l / 4 (and l / 4 + 8 of w), its share of columns is l % 4.
#pragma once

#include <cstddef>

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/product.h"
#include "compute/cuda/kernels/product_formats.h"

namespace tactus::compute::cuda {

// sums[r] += offset * the sum of x over a part. Products with ones give the sums of x. offset(r): of row tile r.
template <class T, class C, int R, class Factor>
TACTUS_DEVICE void AddOffsets(const Factor& offset, const uint32_t (&x)[2 * kProducts<C>], float (&sums)[R][4]) {
  const uint32_t ones[4] = {kOnes<T>, kOnes<T>, kOnes<T>, kOnes<T>};
  float part[4] = {};
#pragma unroll
  for (int i = 0; i < kProducts<C>; ++i) Mma16816<T>(part, ones, x[2 * i], x[2 * i + 1]);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float2 factor = UnpackPair<T>(offset(r));
    sums[r][0] = Fma(factor.x, part[0], sums[r][0]);
    sums[r][1] = Fma(factor.x, part[1], sums[r][1]);
    sums[r][2] = Fma(factor.y, part[2], sums[r][2]);
    sums[r][3] = Fma(factor.y, part[3], sums[r][3]);
  }
}

// sums[n][r] += a step's products of row tile r of R with 8 tokens, for n below N. A lane's sums: rows l / 4, tokens
// 2 (l % 4) and the next; then the same of row l / 4 + 8. `codes`: a lane's loads. factors(r, part, offsets): the pair
// of scales or offsets of both rows. x(n, part, to) sets a lane's values of 8 tokens of a part.
template <class T, class C, int R, int N, class Factors, class X>
TACTUS_DEVICE void AddStep(const ProductArgs& a, const uint4 (&codes)[R][C::kLoads], const Factors& factors,
                           bool has_offsets, const X& x, float (&sums)[N][R][4]) {
  const uint32_t high = a.high, add = has_offsets ? a.add_with_offsets : a.add;
#pragma unroll
  for (int p = 0; p < kParts<C>; ++p) {
    uint32_t w[R][kProducts<C>][4];
    float2 scale[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int i = 0; i < kProducts<C>; ++i) {
        const int j = 2 * (p * kProducts<C> + i);
        w[r][i][0] = C::Pair(codes[r], high, add, 0, j);
        w[r][i][1] = C::Pair(codes[r], high, add, 1, j);
        w[r][i][2] = C::Pair(codes[r], high, add, 0, j + 1);
        w[r][i][3] = C::Pair(codes[r], high, add, 1, j + 1);
      }
      if constexpr (kScaled<C>) scale[r] = UnpackPair<T>(factors(r, p, false));
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      uint32_t v[2 * kProducts<C>];
      x(n, p, v);
      float part[R][4] = {};
#pragma unroll
      for (int i = 0; i < kProducts<C>; ++i) {
#pragma unroll
        for (int r = 0; r < R; ++r) Mma16816<T>(kScaled<C> ? part[r] : sums[n][r], w[r][i], v[2 * i], v[2 * i + 1]);
      }
      if constexpr (kScaled<C>) {
#pragma unroll
        for (int i = 0; i < R * 4; ++i) {
          float& sum = sums[n][i / 4][i % 4];
          sum = Fma(i % 4 < 2 ? scale[i / 4].x : scale[i / 4].y, part[i / 4][i % 4], sum);
        }
        if (has_offsets) AddOffsets<T, C, R>([&](int r) { return factors(r, p, true); }, v, sums[n]);
      }
    }
  }
}

// The tokens of a block: rows [row, row + count) of y, all with one matrix. count 0: none.
struct TokenTile {
  int expert, row, count;
};
// Tile blockIdx.y of the tiles of kTokens rows into which each expert's rows are cut. The same in all threads.
template <int kTokens>
TACTUS_DEVICE TokenTile FindTile(const ProductArgs& a) {
  const int index = static_cast<int>(blockIdx.y);
  if (a.first == nullptr) return {0, index * kTokens, min(kTokens, a.tokens - index * kTokens)};
  const Global<const int32_t> first(a.first);
  const int lane = static_cast<int>(threadIdx.x) % 32, per_lane = (a.experts + 31) / 32;
  const auto tiles = [&](int e) { return (first[e + 1] - first[e] + kTokens - 1) / kTokens; };
  int own = 0;
  for (int e = lane * per_lane; e < min(a.experts, (lane + 1) * per_lane); ++e) own += tiles(e);
  int end = own;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, end, d);
    if (lane >= d) end += other;
  }
  const unsigned beyond = __ballot_sync(0xffffffffu, end > index);
  if (beyond == 0) return {0, 0, 0};
  const int owner = __ffs(beyond) - 1;
  int before = __shfl_sync(0xffffffffu, end - own, owner);
  int expert = owner * per_lane;
  while (before + tiles(expert) <= index) before += tiles(expert++);
  const int row = first[expert] + (index - before) * kTokens;
  return {expert, row, min(kTokens, first[expert + 1] - row)};
}

// The row of x for a row of y.
TACTUS_DEVICE int InputRow(const ProductArgs& a, int row) {
  return a.token == nullptr ? row : Global<const int32_t>(a.token)[row];
}

// The matrix of an expert.
struct MatrixData {
  Global<const uint8_t> codes, scales, offsets;
};
TACTUS_DEVICE Global<const uint8_t> MemoryAt(const Global<const uint64_t>& matrices, int64_t byte) {
  return Global<const uint8_t>(reinterpret_cast<const uint8_t*>(matrices[byte / 8]));
}
TACTUS_DEVICE MatrixData MatrixOf(const ProductArgs& a, int expert) {
  if (a.matrices == nullptr) {
    return {Global<const uint8_t>(static_cast<const uint8_t*>(a.codes)),
            Global<const uint8_t>(static_cast<const uint8_t*>(a.scales)),
            Global<const uint8_t>(static_cast<const uint8_t*>(a.offsets))};
  }
  const Global<const uint64_t> matrices(reinterpret_cast<const uint64_t*>(a.matrices));
  const int64_t at = expert * static_cast<int64_t>(sizeof(DeviceMatrix));
  return {MemoryAt(matrices, at + static_cast<int64_t>(offsetof(DeviceMatrix, data))),
          MemoryAt(matrices, at + static_cast<int64_t>(offsetof(DeviceMatrix, scales))),
          MemoryAt(matrices, at + static_cast<int64_t>(offsetof(DeviceMatrix, offsets)))};
}

// Where a lane's loads of a row tile's codes are, from a step on. Rows behind the last are the last.
template <class C>
class CodesOfLane {
 public:
  CodesOfLane() = default;
  TACTUS_DEVICE CodesOfLane(const ProductArgs& a, int tile, int lane) {
    tile = min(tile, (a.rows - 1) / kTileRows);
    if constexpr (C::kPacked) {
      first_ = static_cast<int64_t>(tile) * a.steps * C::kLoads * 512 + lane * 16;
    } else {
      const int row = min(tile * kTileRows + lane / 4, a.rows - 1), column = ColumnOf<C::kRun>(lane % 4, 0);
      first_ = (static_cast<int64_t>(row) * a.cols + column) * C::kBytes;
      second_ = static_cast<int64_t>(min(row + 8, a.rows - 1) - row) * a.cols * C::kBytes;
      columns_ = a.cols - column;
    }
  }
  // The byte of a load.
  TACTUS_DEVICE int64_t At(int64_t step, int load) const {
    if constexpr (C::kPacked) {
      return first_ + step * (C::kLoads * 512) + load * 512;
    } else {
      return first_ + step * (kStep * C::kBytes) + load % kPerRow * (4 * C::kRun * C::kBytes) +
             (load < kPerRow ? 0 : second_);
    }
  }
  TACTUS_DEVICE void Advance(int steps) {
    if constexpr (C::kPacked) {
      first_ += steps * (C::kLoads * 512);
    } else {
      first_ += steps * (kStep * C::kBytes);
      columns_ -= steps * kStep;
    }
  }
  // Whether a load's columns exist.
  TACTUS_DEVICE bool Exists(int step, int load) const {
    if constexpr (C::kPacked) {
      return true;
    } else {
      return step * kStep + load % kPerRow * (4 * C::kRun) < columns_;
    }
  }

 private:
  static constexpr int kPerRow = C::kLoads < 2 ? 1 : C::kLoads / 2;  // loads of a row
  int64_t first_ = 0, second_ = 0;                                   // from the lane's first row to its second
  int columns_ = 0;                                                  // from the lane's first
};

// The group of a part.
template <class C>
TACTUS_DEVICE int GroupOf(const ProductArgs& a, int step, int part) {
  return (step * kStep + part * C::kUnit) >> a.group_shift;
}

// The constants of a format.
template <class C>
ProductArgs WithConstants(ProductArgs args) {
  args.high = C::kHigh;
  args.add = C::kAdd;
  args.add_with_offsets = C::kAddWithOffsets;
  return args;
}

// y[row of y, row of w] = the sum with its factors.
template <class T>
TACTUS_DEVICE void WriteProduct(const ProductArgs& a, const MatrixData& matrix, int expert, int y_row, int row,
                                float sum) {
  if (a.row_scales || a.one_scale) {
    const Global<const float> scales(reinterpret_cast<const float*>(matrix.scales.p));
    sum = Mul(sum, scales[a.row_scales ? row : 0]);
  }
  if (a.row_weights != nullptr) sum = Mul(sum, Global<const float>(a.row_weights)[y_row]);
  if (a.bias != nullptr) sum = Add(sum, Global<const float>(a.bias)[static_cast<int64_t>(expert) * a.rows + row]);
  const int64_t at = y_row * a.y_stride + row;
  if (!a.y_float) {
    Global<T>(static_cast<T*>(a.y))[at] = FromFloat<T>(sum);
    return;
  }
  const Global<float> y(static_cast<float*>(a.y));
  if (a.adds) {
    const float before = y[at];
    sum = Add(before, sum);
  }
  y[at] = sum;
}

}  // namespace tactus::compute::cuda
