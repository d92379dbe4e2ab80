#include "samples.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 128, kTile = 64, kDepth = 32, kStages = 2;
constexpr int kStride = kDepth + 8;          // of a row in shared memory: no bank has two rows of a matrix
constexpr int kStage = 2 * kTile * kStride;  // values of both operands

// Rows [first, first + kTile) of a matrix [rows, cols], columns [column, column + kDepth).
template <class T>
TACTUS_DEVICE void Fetch(const Global<const T>& from, int64_t first, int64_t rows, int64_t column, int64_t cols,
                         const Shared<T>& to, int at) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth / 8; i += kThreads) {
    const int row = i / (kDepth / 8), part = i % (kDepth / 8) * 8;
    const bool inside = first + row < rows && column + part < cols;
    CpAsync16(to.At(at + row * kStride + part), from, inside ? (first + row) * cols + column + part : 0, inside);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) Multiply(Global<const T> x, Global<const T> w, int64_t tokens, int64_t rows,
                                                     int64_t cols, Global<float> y, Bug bug) {
  const Shared<T> tiles = DynamicShared<T>(0, kStages * kStage);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t token = static_cast<int64_t>(blockIdx.y) * kTile, row = static_cast<int64_t>(blockIdx.x) * kTile;
  const int steps = static_cast<int>((cols + kDepth - 1) / kDepth);
  const auto fetch = [&](int step) {
    const int at = step % kStages * kStage;
    if (step < steps) {
      Fetch(x, token, tokens, static_cast<int64_t>(step) * kDepth, cols, tiles, at);
      Fetch(w, row, rows, static_cast<int64_t>(step) * kDepth, cols, tiles, at + kTile * kStride);
    }
    CpAsyncCommit();
  };
  float sums[8][4] = {};
  fetch(0);
  for (int step = 0; step < steps; ++step) {
    fetch(step + 1);
    if (bug == Bug::kShortWait) {
      CpAsyncWait<2>();
    } else {
      CpAsyncWait<1>();
    }
    __syncthreads();
    const int at = step % kStages * kStage;
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[4];
      LdMatrixX4(a, tiles.At(at + (warp * 16 + lane % 16) * kStride + k + lane / 16 * 8));
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        uint32_t b[2];
        LdMatrixX2(b, tiles.At(at + kTile * kStride + (n * 8 + lane % 8) * kStride + k + lane / 8 % 2 * 8));
        Mma16816<T>(sums[n], a, b[0], b[1]);
      }
    }
    if (bug != Bug::kNoSecondBarrier) __syncthreads();
  }
  CpAsyncWait<0>();
  for (int n = 0; n < 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int64_t t = token + warp * 16 + lane / 4 + i / 2 * 8, r = row + n * 8 + lane % 4 * 2 + i % 2;
      if (t < tokens && r < rows + (bug == Bug::kOneTooMany ? 1 : 0)) y[t * rows + r] = sums[n][i];
    }
  }
}

template <class T>
void Start(Stream& s, const void* x, const void* w, int64_t tokens, int64_t rows, int64_t cols, float* y, Bug bug) {
  const dim3 grid(static_cast<unsigned>((rows + kTile - 1) / kTile),
                  static_cast<unsigned>((tokens + kTile - 1) / kTile));
  Launch("Multiply", s, Multiply<T>, grid, kThreads, kStages * kStage * 2, static_cast<const T*>(x),
         static_cast<const T*>(w), tokens, rows, cols, y, bug);
}

}  // namespace

void SampleGemm(Stream& s, const void* x, const void* w, Real type, int64_t tokens, int64_t rows, int64_t cols,
                float* y, Bug bug) {
  if (type == Real::kBF16) {
    Start<bf16>(s, x, w, tokens, rows, cols, y, bug);
  } else {
    Start<f16>(s, x, w, tokens, rows, cols, y, bug);
  }
}

}  // namespace tactus::compute::cuda
