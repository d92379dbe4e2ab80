// Products of many tokens: the 8 warps of a block share tiles of w and x in shared memory, in the order in which lanes
// read them. Four warps have 16 * R rows each, two have 8 * N tokens each. A warp adds the slices one after another.
#pragma once

#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/product_step.h"

namespace tactus::compute::cuda {

inline constexpr int kRowWarps = 4, kTokenWarps = 2, kBlockThreads = 32 * kRowWarps * kTokenWarps;

template <class C, int R, int N>
struct BlocksLayout {
  static constexpr int kRowTiles = R * kRowWarps, kTokens = 8 * N * kTokenWarps;
  static constexpr int kInput = kTokens * kStep * 2;  // bytes of a step's x, and so on
  static constexpr int kCodes = kRowTiles * C::kLoads * 512;
  static constexpr int kFactors = kRowTiles * kFactorBytes<C>;
  static constexpr int kStage = kInput + kCodes + 2 * kFactors;
  static constexpr int kMost = 96 * 1024 / kStage;  // 99 KiB is the least that a block may have
  static constexpr int kStages = kMost < 4 ? kMost : 4;
  static constexpr int kBytes = kStages * kStage;
  static constexpr int kInputCopies = kInput / 16 / kBlockThreads;  // of a thread
  static constexpr int kCodeCopies = kCodes / 16;
  static_assert(kStages >= 3 && kInput % (16 * kBlockThreads) == 0 && 2 * kFactors / 16 <= kBlockThreads);
};

// 16 bytes of a step's x, the `piece`th of the tile: 8 tokens have 64 pieces, lane by lane.
struct InputPiece {
  int token, column;
};
template <int kRun>
TACTUS_DEVICE InputPiece InputPieceOf(int piece) {
  const int first = piece / 64 * 8, within = piece % 64;
  if constexpr (kRun == 4) return {first + within / 2 % 8, within / 16 * 16 + within % 2 * 8};
  return {first + within / 4 % 8, ColumnOf<kRun>(within % 4, within / 32 * 8)};
}
// Reads a lane's values of a part, for the 8 tokens at byte `at`.
template <class C>
TACTUS_DEVICE void ReadInput(const Shared<uint8_t>& shared, int at, int part, uint32_t (&out)[2 * kProducts<C>]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (C::kRun == 4) {
    const uint2 v = shared.template Load<uint2>(at + part * 256 + lane * 8);
    out[0] = v.x;
    out[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < kProducts<C> / 2; ++i) {
      const uint4 v = shared.template Load<uint4>(at + (part * kProducts<C> / 2 + i) * 512 + lane * 16);
      out[4 * i] = v.x;
      out[4 * i + 1] = v.y;
      out[4 * i + 2] = v.z;
      out[4 * i + 3] = v.w;
    }
  }
}

// Starts the copies of a step to the stage at byte `to`. x_row: of the thread's pieces, -1: zeros.
template <class C, int R, int N>
TACTUS_DEVICE void CopyToStage(const ProductArgs& a, const Global<const uint8_t>& x, const MatrixData& matrix,
                               int first_tile, const int (&x_row)[BlocksLayout<C, R, N>::kInputCopies], int step,
                               const Shared<uint8_t>& shared, int to) {
  using L = BlocksLayout<C, R, N>;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < L::kInputCopies; ++i) {
    const int piece = i * kBlockThreads + thread, column = step * kStep + InputPieceOf<C::kRun>(piece).column;
    const bool exists = x_row[i] >= 0 && column < a.cols;
    CpAsync16(shared.At(to + piece * 16), x, exists ? 2 * (static_cast<int64_t>(x_row[i]) * a.cols + column) : 0,
              exists);
  }
#pragma unroll
  for (int i = 0; i < L::kCodeCopies; i += kBlockThreads) {
    const int piece = i + thread;
    if (L::kCodeCopies % kBlockThreads != 0 && piece >= L::kCodeCopies) break;
    const CodesOfLane<C> line(a, first_tile + piece / (32 * C::kLoads), piece % 32);
    const int load = piece / 32 % C::kLoads;
    CpAsync16(shared.At(to + L::kInput + piece * 16), matrix.codes, line.At(step, load), line.Exists(step, load));
  }
  if constexpr (kScaled<C>) {
    constexpr int kPieces = L::kFactors / 16;  // two of a part of a row tile
    if (thread < (matrix.offsets.exists() ? 2 : 1) * kPieces) {
      const int piece = thread % kPieces;
      const int tile = min(first_tile + piece / (2 * kParts<C>), (a.rows - 1) / kTileRows);
      const int64_t group = static_cast<int64_t>(tile) * a.groups + GroupOf<C>(a, step, piece / 2 % kParts<C>);
      CpAsync16(shared.At(to + L::kInput + L::kCodes + thread * 16), thread < kPieces ? matrix.scales : matrix.offsets,
                group * 32 + piece % 2 * 16, true);
    }
  }
}

// Writes a warp's sums through its part of shared memory, so that lanes write successive rows of a token.
template <class T, class C, int R, int N>
TACTUS_DEVICE void WriteSums(const ProductArgs& a, const MatrixData& matrix, const TokenTile& tile, int row_warp,
                             int token_warp, const float (&sums)[N][R][4]) {
  constexpr int kRows = R * kTileRows, kTokenSums = kRows + 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int own = (row_warp * kTokenWarps + token_warp) * 8 * kTokenSums;
  const Shared<float> shared = DynamicShared<float>(0, kRowWarps * kTokenWarps * 8 * kTokenSums);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        shared[own + (lane % 4 * 2 + c % 2) * kTokenSums + r * kTileRows + lane / 4 + c / 2 * 8] = sums[n][r][c];
      }
    }
    __syncwarp();
    const int row = lane % kRows, w_row = (static_cast<int>(blockIdx.x) * kRowWarps + row_warp) * kRows + row;
    if (w_row >= a.rows) continue;
    for (int i = lane / kRows; i < 8; i += 32 / kRows) {
      const int token = (token_warp * N + n) * 8 + i;
      if (token >= tile.count) break;
      const float sum = shared[own + i * kTokenSums + row];
      WriteProduct<T>(a, matrix, tile.expert, tile.row + token, w_row, sum);
    }
  }
}

template <class T, class C, int R, int N>
__global__ void __launch_bounds__(kBlockThreads, 1) MultiplyBlocks(ProductArgs a) {
  using L = BlocksLayout<C, R, N>;
  const TokenTile tile = FindTile<L::kTokens>(a);
  if (tile.count <= 0) return;
  const MatrixData matrix = MatrixOf(a, tile.expert);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            row_warp = warp / kTokenWarps, token_warp = warp % kTokenWarps;
  const int first_tile = static_cast<int>(blockIdx.x) * L::kRowTiles;
  const Shared<uint8_t> shared = DynamicShared<uint8_t>(0, L::kBytes);
  const bool offsets = kScaled<C> && matrix.offsets.exists();

  const Global<const uint8_t> input(static_cast<const uint8_t*>(a.x));
  int x_row[L::kInputCopies];
#pragma unroll
  for (int i = 0; i < L::kInputCopies; ++i) {
    const int token = InputPieceOf<C::kRun>(i * kBlockThreads + static_cast<int>(threadIdx.x)).token;
    x_row[i] = token < tile.count ? InputRow(a, tile.row + token) : -1;
  }
#pragma unroll
  for (int i = 0; i < L::kStages - 1; ++i) {
    if (i < a.steps) CopyToStage<C, R, N>(a, input, matrix, first_tile, x_row, i, shared, i * L::kStage);
    CpAsyncCommit();
  }
  const bool has_tokens = token_warp * N * 8 < tile.count;
  float sums[N][R][4] = {}, total[N][R][4] = {};
  int stage = 0, slice_end = min(a.slice_steps, a.steps);
  for (int step = 0; step < a.steps; ++step) {
    CpAsyncWait<L::kStages - 2>();
    __syncthreads();  // all copies of this step are there, and all warps have read the stage that is filled next
    const int filled = stage == 0 ? L::kStages - 1 : stage - 1, next = step + L::kStages - 1;
    if (next < a.steps) {
      CopyToStage<C, R, N>(a, input, matrix, first_tile, x_row, next, shared, filled * L::kStage);
    }
    CpAsyncCommit();
    if (has_tokens) {
      const int at = stage * L::kStage, codes_at = at + L::kInput + row_warp * R * C::kLoads * 512 + lane * 16;
      const int factors_at = at + L::kInput + L::kCodes + row_warp * R * kFactorBytes<C> + lane / 4 * 4;
      uint4 codes[R][C::kLoads];
#pragma unroll
      for (int i = 0; i < R * C::kLoads; ++i) {
        codes[i / C::kLoads][i % C::kLoads] = shared.Load<uint4>(codes_at + i * 512);
      }
      const auto factors = [&](int r, int part, bool offset) {
        return shared.Load<uint32_t>(factors_at + (offset ? L::kFactors : 0) + (r * kParts<C> + part) * 32);
      };
      const auto values = [&](int n, int part, uint32_t(&to)[2 * kProducts<C>]) {
        ReadInput<C>(shared, at + (token_warp * N + n) * 8 * kStep * 2, part, to);
      };
      AddStep<T, C, R, N>(a, codes, factors, offsets, values, sums);
    }
    stage = stage + 1 == L::kStages ? 0 : stage + 1;
    if (step + 1 < slice_end) continue;
    const bool first = slice_end <= a.slice_steps;
    slice_end = min(slice_end + a.slice_steps, a.steps);
#pragma unroll
    for (int i = 0; i < N * R * 4; ++i) {
      float& sum = sums[i / (4 * R)][i / 4 % R][i % 4];
      float& all = total[i / (4 * R)][i / 4 % R][i % 4];
      all = first ? sum : Add(all, sum);
      sum = 0.0f;
    }
  }
  CpAsyncWait<0>();
  __syncthreads();  // all stages have been read
  // They are found again, because the loop needs the registers.
  const TokenTile end_tile = FindTile<L::kTokens>(a);
  const MatrixData end_matrix = MatrixOf(a, end_tile.expert);
  if (has_tokens) WriteSums<T, C, R, N>(a, end_matrix, end_tile, row_warp, token_warp, total);
}

template <class T, class C, int R, int N>
void LaunchBlocks(Stream& s, const ProductArgs& a) {
  using L = BlocksLayout<C, R, N>;
  constexpr int kRows = L::kRowTiles * kTileRows;
  const dim3 grid(static_cast<unsigned>((a.rows + kRows - 1) / kRows), static_cast<unsigned>(MostTiles(a, L::kTokens)));
  Launch("MultiplyBlocks", s, MultiplyBlocks<T, C, R, N>, grid, kBlockThreads, L::kBytes, WithConstants<C>(a));
}

}  // namespace tactus::compute::cuda
