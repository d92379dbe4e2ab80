// Products of few tokens: the 8 warps of a block have a slice of the columns each, of the same rows and tokens. Codes
// come from memory to registers several steps ahead, x from the caches two steps ahead.
#pragma once

#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/product_step.h"

namespace tactus::compute::cuda {

// What a lane has of a step of R row tiles.
template <class C, int R>
struct SliceStep {
  uint4 codes[R][C::kLoads];
  uint32_t scales[R][kParts<C>], offsets[R][kParts<C>];  // pairs
};
// Steps under way: about 4 KiB of a warp.
template <class C, int R>
constexpr int kStepsAhead = R * C::kLoads == 1                    ? (kParts<C> < 4 ? 6 : 4)
                            : R * C::kLoads == 2 && kParts<C> < 4 ? 4
                                                                  : 2;

// Shared memory: sums of slices, [slice, token, row]. 4 more floats per token, so that a warp's writes meet no bank
// twice.
template <int R>
constexpr int kTokenSums = R * kTileRows + 4;
template <int R, int N>
constexpr int kSlicesBytes = kSlices * N * 8 * kTokenSums<R> * 4;

// A lane's loads of w, from a step on.
template <class C, int R>
struct SliceCodes {
  Global<const uint8_t> codes;
  Global<const uint32_t> scales, offsets;
  CodesOfLane<C> lines[R];
  uint32_t factors[R];  // the first pair of a row tile
  int column;

  TACTUS_DEVICE SliceCodes(const ProductArgs& a, const MatrixData& matrix, int first_tile, int lane, int step)
      : codes(matrix.codes),
        scales(reinterpret_cast<const uint32_t*>(matrix.scales.p)),
        offsets(reinterpret_cast<const uint32_t*>(matrix.offsets.p)),
        column(step * kStep) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      lines[r] = CodesOfLane<C>(a, first_tile + r, lane);
      lines[r].Advance(step);
      const int tile = min(first_tile + r, (a.rows - 1) / kTileRows);
      factors[r] = static_cast<uint32_t>(tile * a.groups * (kTileRows / 2) + lane / 4);
    }
  }
  TACTUS_DEVICE void Load(const ProductArgs& a, int step, SliceStep<C, R>& out) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int i = 0; i < C::kLoads; ++i) {
        out.codes[r][i] = make_uint4(0, 0, 0, 0);
        if (lines[r].Exists(step, i)) out.codes[r][i] = codes.template Load<uint4>(lines[r].At(step, i));
      }
#pragma unroll
      for (int p = 0; p < kParts<C> && kScaled<C>; ++p) {
        const int group = (column + step * kStep + p * C::kUnit) >> a.group_shift;
        const uint32_t at = factors[r] + static_cast<uint32_t>(group) * (kTileRows / 2);
        out.scales[r][p] = scales[at];
        out.offsets[r][p] = 0;
        if (offsets.exists()) out.offsets[r][p] = offsets[at];
      }
    }
  }
  TACTUS_DEVICE void Advance(int steps) {
#pragma unroll
    for (int r = 0; r < R; ++r) lines[r].Advance(steps);
    column += steps * kStep;
  }
};

// A lane's loads of x, from a step on. Tokens behind the last have the last one's values.
template <class T, int kRun, int N>
struct SliceInput {
  Global<const T> x;
  int64_t first[N];
  int columns, own_columns;  // left in the row; from the lane's first on

  TACTUS_DEVICE SliceInput(const ProductArgs& a, const TokenTile& tile, int lane, int step)
      : x(static_cast<const T*>(a.x)), columns(a.cols - step * kStep) {
    const int column = ColumnOf<kRun>(lane % 4, 0);
    own_columns = columns - column;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int64_t row = InputRow(a, tile.row + min(n * 8 + lane / 4, tile.count - 1));
      first[n] = row * a.cols + step * kStep + column;
    }
  }
  // Columns behind the last are 0.
  TACTUS_DEVICE void Load(int step, uint32_t (&out)[N][8]) const {
    if ((step + 1) * kStep <= columns) {
#pragma unroll
      for (int i = 0; i < N * 8; ++i) LoadPiece(step, i / 8, i % 8, out[i / 8]);
    } else {
#pragma unroll
      for (int i = 0; i < N * 8; ++i) out[i / 8][i % 8] = 0;
#pragma unroll
      for (int i = 0; i < N * 8; ++i) {
        if (step * kStep + ColumnOf<kRun>(0, i % 8 * 2) < own_columns) LoadPiece(step, i / 8, i % 8, out[i / 8]);
      }
    }
  }
  // The values from pair `pair` on that one load brings; nothing for pairs that another load brings.
  TACTUS_DEVICE void LoadPiece(int step, int n, int pair, uint32_t (&out)[8]) const {
    const int64_t at = first[n] + step * kStep + ColumnOf<kRun>(0, 2 * pair);
    if constexpr (kRun == 4) {
      if (pair % 2 != 0) return;
      const uint2 v = x.template Load<uint2>(at);
      out[pair] = v.x;
      out[pair + 1] = v.y;
    } else {
      if (pair % 4 != 0) return;
      const uint4 v = x.template Load<uint4>(at);
      out[pair] = v.x;
      out[pair + 1] = v.y;
      out[pair + 2] = v.z;
      out[pair + 3] = v.w;
    }
  }
  TACTUS_DEVICE void Advance(int steps) {
#pragma unroll
    for (int n = 0; n < N; ++n) first[n] += steps * kStep;
    columns -= steps * kStep;
    own_columns -= steps * kStep;
  }
};

// Adds the sums of slices in ascending order and writes them.
template <class T, int R, int N>
TACTUS_DEVICE void AddSlices(const ProductArgs& a, const MatrixData& matrix, const TokenTile& tile,
                             const float (&sums)[N][R][4]) {
  constexpr int kRows = R * kTileRows, kTokens = 8 * N;
  const int lane = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 32;
  const Shared<float> shared = DynamicShared<float>(0, kSlicesBytes<R, N> / 4);
  const int slices = (a.steps + a.slice_steps - 1) / a.slice_steps;
  if (slice < slices) {
#pragma unroll
    for (int i = 0; i < N * R * 4; ++i) {
      const int n = i / (4 * R), r = i / 4 % R, c = i % 4;
      const int token = n * 8 + lane % 4 * 2 + c % 2, row = r * kTileRows + lane / 4 + c / 2 * 8;
      shared[(slice * kTokens + token) * kTokenSums<R> + row] = sums[n][r][c];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * tile.count; i += 32 * kSlices) {
    const int token = i / kRows, row = i % kRows, w_row = static_cast<int>(blockIdx.x) * kRows + row;
    if (w_row >= a.rows) continue;
    float sum = shared[token * kTokenSums<R> + row];
    for (int s = 1; s < slices; ++s) {
      const float part = shared[(s * kTokens + token) * kTokenSums<R> + row];
      sum = Add(sum, part);
    }
    WriteProduct<T>(a, matrix, tile.expert, tile.row + token, w_row, sum);
  }
}

template <class T, class C, int R, int N>
__global__ void __launch_bounds__(32 * kSlices, 1) MultiplySlices(ProductArgs a) {
  constexpr int kAhead = kStepsAhead<C, R>;
  const TokenTile tile = FindTile<8 * N>(a);
  if (tile.count <= 0) return;
  const MatrixData matrix = MatrixOf(a, tile.expert);
  const int lane = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 32;
  const int begin = slice * a.slice_steps, end = min(a.steps, begin + a.slice_steps);
  const bool has_offsets = kScaled<C> && matrix.offsets.exists();

  SliceCodes<C, R> codes(a, matrix, static_cast<int>(blockIdx.x) * R, lane, begin);
  SliceInput<T, C::kRun, N> input(a, tile, lane, begin);
  SliceStep<C, R> ahead[kAhead];
  uint32_t x[2][N][8];
  int left = end - begin;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i < left) codes.Load(a, i, ahead[i]);
    if (i < 2 && i < left) input.Load(i, x[i]);
  }
  float sums[N][R][4] = {};
  for (; left > 0; left -= kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i >= left) break;
      const auto factors = [&](int r, int part, bool offsets) {
        return offsets ? ahead[i].offsets[r][part] : ahead[i].scales[r][part];
      };
      const auto values = [&](int n, int part, uint32_t(&to)[2 * kProducts<C>]) {
#pragma unroll
        for (int k = 0; k < 2 * kProducts<C>; ++k) to[k] = x[i % 2][n][part * 2 * kProducts<C> + k];
      };
      AddStep<T, C, R, N>(a, ahead[i].codes, factors, has_offsets, values, sums);
      if (i + kAhead < left) codes.Load(a, i + kAhead, ahead[i]);
      if (i + 2 < left) input.Load(i + 2, x[i % 2]);
    }
    codes.Advance(kAhead);
    input.Advance(kAhead);
  }
  AddSlices<T, R, N>(a, matrix, tile, sums);
}

template <class T, class C, int R, int N>
void LaunchSlices(Stream& s, const ProductArgs& a) {
  constexpr int kRows = R * kTileRows;
  const dim3 grid(static_cast<unsigned>((a.rows + kRows - 1) / kRows), static_cast<unsigned>(MostTiles(a, 8 * N)));
  Launch("MultiplySlices", s, MultiplySlices<T, C, R, N>, grid, 32 * kSlices, kSlicesBytes<R, N>, WithConstants<C>(a));
}

}  // namespace tactus::compute::cuda
