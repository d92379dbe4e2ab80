// Products of few tokens: the 8 warps of a block have a slice of the columns each, of the same rows and tokens. Codes
// go through rings in shared memory, one per warp. A lane reads the codes that it copied itself. x comes from the
// caches.
#pragma once

#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/product_step.h"

namespace tactus::compute::cuda {

// Shared memory of a block of R row tiles and 8 * N tokens.
template <class C, int R, int N>
struct SlicesLayout {
  static constexpr int kCodes = R * C::kLoads * 512;    // bytes of a warp's step
  static constexpr int kFactors = R * kFactorBytes<C>;  // of its scales
  static constexpr int kStage = kCodes + 2 * kFactors;
  // A warp has about 4 KiB under way.
  static constexpr int kStages = kCodes <= 512 ? 8 : kCodes <= 1024 ? 5 : kCodes <= 2048 ? 4 : 3;
  static constexpr int kRing = kStages * kStage;
  // Sums of slices, [slice, token, row]; 4 more floats per token, so that a warp's writes meet no bank twice.
  static constexpr int kTokenSums = R * kTileRows + 4;
  static constexpr int kSums = kSlices * N * 8 * kTokenSums * 4;
  static constexpr int kBytes = kSlices * kRing > kSums ? kSlices* kRing : kSums;
};

// A lane's 16 values of a step of a row of x. row < 0: zeros.
template <class T, int kRun>
TACTUS_DEVICE void LoadInput(const ProductArgs& a, const Global<const T>& x, int row, int step, int share,
                             uint32_t (&out)[8]) {
  constexpr int kValues = kRun == 4 ? 4 : 8;
#pragma unroll
  for (int i = 0; i < 16; i += kValues) {
    const int column = step * kStep + ColumnOf<kRun>(share, i);
    const bool exists = row >= 0 && column < a.cols;
    const int64_t at = static_cast<int64_t>(row) * a.cols + column;
    if constexpr (kValues == 4) {
      const uint2 v = exists ? x.template Load<uint2>(at) : make_uint2(0, 0);
      out[i / 2] = v.x;
      out[i / 2 + 1] = v.y;
    } else {
      const uint4 v = exists ? x.template Load<uint4>(at) : make_uint4(0, 0, 0, 0);
      out[i / 2] = v.x;
      out[i / 2 + 1] = v.y;
      out[i / 2 + 2] = v.z;
      out[i / 2 + 3] = v.w;
    }
  }
}

// Starts the copies of a warp's step to its ring.
template <class C, int R, int N>
TACTUS_DEVICE void CopyToRing(const ProductArgs& a, const MatrixData& matrix, int first_tile, int step,
                              const Shared<uint8_t>& shared, int to) {
  using L = SlicesLayout<C, R, N>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < R * C::kLoads; ++i) {
    CopyCodes<C>(a, matrix.codes, first_tile + i / C::kLoads, step, i % C::kLoads, lane,
                 shared.At(to + i * 512 + lane * 16));
  }
  if constexpr (kScaled<C>) {
    constexpr int kPieces = L::kFactors / 16;
    static_assert(2 * kPieces <= 32, "a lane copies one piece");
    if (lane < (matrix.offsets.exists() ? 2 : 1) * kPieces) {
      CopyFactors<C>(a, lane < kPieces ? matrix.scales : matrix.offsets, first_tile, step, lane % kPieces,
                     shared.At(to + L::kCodes + lane * 16));
    }
  }
}

// Adds the sums of slices in ascending order and writes them.
template <class T, class C, int R, int N>
TACTUS_DEVICE void AddSlices(const ProductArgs& a, const MatrixData& matrix, const TokenTile& tile,
                             const float (&sums)[N][R][4]) {
  using L = SlicesLayout<C, R, N>;
  constexpr int kRows = R * kTileRows, kTokens = 8 * N;
  const int lane = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 32;
  const Shared<float> shared = DynamicShared<float>(0, L::kBytes / 4);
  const int slices = (a.steps + a.slice_steps - 1) / a.slice_steps;
  if (slice < slices) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int token = n * 8 + lane % 4 * 2 + c % 2, row = r * kTileRows + lane / 4 + c / 2 * 8;
          shared[(slice * kTokens + token) * L::kTokenSums + row] = sums[n][r][c];
        }
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * tile.count; i += 32 * kSlices) {
    const int token = i / kRows, row = i % kRows, w_row = static_cast<int>(blockIdx.x) * kRows + row;
    if (w_row >= a.rows) continue;
    float sum = shared[token * L::kTokenSums + row];
    for (int s = 1; s < slices; ++s) {
      const float part = shared[(s * kTokens + token) * L::kTokenSums + row];
      sum = Add(sum, part);
    }
    WriteProduct<T>(a, matrix, tile.expert, tile.row + token, w_row, sum);
  }
}

template <class T, class C, int R, int N>
__global__ void __launch_bounds__(32 * kSlices, 1) MultiplySlices(ProductArgs a) {
  using L = SlicesLayout<C, R, N>;
  const TokenTile tile = FindTile<8 * N>(a);
  if (tile.count <= 0) return;
  const MatrixData matrix = MatrixOf(a, tile.expert);
  const int lane = static_cast<int>(threadIdx.x) % 32, slice = static_cast<int>(threadIdx.x) / 32;
  const int first_tile = static_cast<int>(blockIdx.x) * R;
  const int begin = slice * a.slice_steps, end = min(a.steps, begin + a.slice_steps);
  const Shared<uint8_t> shared = DynamicShared<uint8_t>(0, L::kBytes);
  const bool offsets = kScaled<C> && matrix.offsets.exists();

  const Global<const T> input(static_cast<const T*>(a.x));
  int x_row[N];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int token = n * 8 + lane / 4;
    x_row[n] = token < tile.count ? InputRow(a, tile.row + token) : -1;
  }
  const int ring = slice * L::kRing;
#pragma unroll
  for (int i = 0; i < L::kStages - 1; ++i) {
    if (begin + i < end) CopyToRing<C, R, N>(a, matrix, first_tile, begin + i, shared, ring + i * L::kStage);
    CpAsyncCommit();
  }
  uint32_t x[N][8] = {}, next[N][8] = {};
  if (begin < end) {
#pragma unroll
    for (int n = 0; n < N; ++n) LoadInput<T, C::kRun>(a, input, x_row[n], begin, lane % 4, x[n]);
  }
  float sums[N][R][4] = {};
  int stage = 0;
  for (int step = begin; step < end; ++step) {
    CpAsyncWait<L::kStages - 2>();
    __syncwarp();  // other lanes copied the scales, and have read the stage that is filled next
    const int filled = stage == 0 ? L::kStages - 1 : stage - 1;
    if (step + L::kStages - 1 < end) {
      CopyToRing<C, R, N>(a, matrix, first_tile, step + L::kStages - 1, shared, ring + filled * L::kStage);
    }
    CpAsyncCommit();
    if (step + 1 < end) {
#pragma unroll
      for (int n = 0; n < N; ++n) LoadInput<T, C::kRun>(a, input, x_row[n], step + 1, lane % 4, next[n]);
    }
    const int at = ring + stage * L::kStage;
    const auto values = [&](int n, int part, uint32_t(&to)[2 * kProducts<C>]) {
#pragma unroll
      for (int i = 0; i < 2 * kProducts<C>; ++i) to[i] = x[n][part * 2 * kProducts<C> + i];
    };
    AddStep<T, C, R, N>(shared, at, at + L::kCodes, at + L::kCodes + L::kFactors, offsets, values, sums);
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[n][i] = next[n][i];
    }
    stage = stage + 1 == L::kStages ? 0 : stage + 1;
  }
  CpAsyncWait<0>();
  __syncthreads();  // all rings have been read
  AddSlices<T, C, R, N>(a, matrix, tile, sums);
}

template <class T, class C, int R, int N>
void LaunchSlices(Stream& s, const ProductArgs& a) {
  constexpr int kRows = R * kTileRows;
  const dim3 grid(static_cast<unsigned>((a.rows + kRows - 1) / kRows), static_cast<unsigned>(MostTiles(a, 8 * N)));
  Launch("MultiplySlices", s, MultiplySlices<T, C, R, N>, grid, 32 * kSlices, SlicesLayout<C, R, N>::kBytes, a);
}

}  // namespace tactus::compute::cuda
