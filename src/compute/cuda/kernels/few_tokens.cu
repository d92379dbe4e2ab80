#include "compute/cuda/kernels/few_tokens.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/packs.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kFewThreads = 128;
constexpr int kFewPack = 8;     // values of 16 bits that a lane loads at once
constexpr int kRowsOfWarp = 2;  // which share the loads of x

// A warp has kRowsOfWarp rows of w. A lane adds every 32nd pack of a row, then the lanes' sums are added.
template <class T, class Y, int kTokens>
__global__ void __launch_bounds__(kFewThreads)
    FewTokensKernel(Global<const T> x, Global<const T> w, int64_t rows, int64_t cols, Global<const float> bias,
                    Global<Y> y, int64_t y_stride, bool adds) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (kFewThreads / 32) + warp) * kRowsOfWarp;
  if (first >= rows) return;  // a whole warp
  float sums[kRowsOfWarp][kTokens];
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sums[r][t] = 0.0f;
  }
#pragma unroll 2
  for (int64_t c = lane * kFewPack; c < cols; c += 32 * kFewPack) {
    float weights[kRowsOfWarp][kFewPack];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const int64_t row = first + r < rows ? first + r : first;  // a row beyond the last: not stored
      LoadValues<kFewPack>(w, row * cols + c, weights[r]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float values[kFewPack];
      LoadValues<kFewPack>(x, t * cols + c, values);
#pragma unroll
      for (int r = 0; r < kRowsOfWarp; ++r) {
#pragma unroll
        for (int i = 0; i < kFewPack; ++i) sums[r][t] = Fma(weights[r][i], values[i], sums[r][t]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float sum = WarpSum(sums[r][t]);
      const int64_t row = first + r;
      if (lane != 0 || row >= rows) continue;
      if (bias.exists()) {
        const float b = bias[row];
        sum = Add(sum, b);
      }
      const int64_t at = t * y_stride + row;
      if (adds) {
        const Y before = y[at];
        sum = Add(ToFloat(before), sum);
      }
      y[at] = FromFloat<Y>(sum);
    }
  }
}

template <class T, class Y, int kTokens>
void LaunchFew(Stream& s, const GemmCall& call) {
  constexpr int64_t kRowsOfBlock = kFewThreads / 32 * kRowsOfWarp;
  const auto blocks = static_cast<unsigned>((call.rows + kRowsOfBlock - 1) / kRowsOfBlock);
  Launch("FewTokens", s, FewTokensKernel<T, Y, kTokens>, dim3(blocks), kFewThreads, 0,
         Global<const T>(static_cast<const T*>(call.x), call.tokens * call.cols),
         Global<const T>(static_cast<const T*>(call.w), call.rows * call.cols), call.rows, call.cols,
         Global<const float>(call.bias, call.rows), Global<Y>(static_cast<Y*>(call.y)), call.y_stride, call.adds);
}

template <class T, class Y>
void MultiplyTyped(Stream& s, const GemmCall& call) {
  switch (call.tokens) {
    case 1:
      return LaunchFew<T, Y, 1>(s, call);
    case 2:
      return LaunchFew<T, Y, 2>(s, call);
    case 3:
      return LaunchFew<T, Y, 3>(s, call);
    default:
      return LaunchFew<T, Y, 4>(s, call);
  }
}

template <class T>
void MultiplyInto(Stream& s, const GemmCall& call) {
  call.y_type == Real::kF32 ? MultiplyTyped<T, float>(s, call) : MultiplyTyped<T, T>(s, call);
}

}  // namespace

bool IsFewTokens(const GemmCall& call) {
  return call.tokens >= 1 && call.tokens <= kFewDenseTokens && call.x_scales == nullptr && call.type != Real::kF32 &&
         (call.y_type == call.type || call.y_type == Real::kF32) && IsAligned(call.x, call.cols * SizeOf(call.type)) &&
         IsAligned(call.w);
}

void MultiplyFew(Stream& s, const GemmCall& call) {
  call.type == Real::kBF16 ? MultiplyInto<bf16>(s, call) : MultiplyInto<f16>(s, call);
}

}  // namespace tactus::compute::cuda
