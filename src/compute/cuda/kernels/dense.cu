#include "compute/cuda/kernels/dense.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kLargestE4M3 = 448.0f;

// A block has kThreads columns of one row.
dim3 GridOf(int64_t tokens, int64_t columns) {
  return dim3(static_cast<unsigned>(tokens), static_cast<unsigned>((columns + kThreads - 1) / kThreads));
}

template <class Y>
__global__ void __launch_bounds__(kThreads)
    SpreadBiasKernel(Global<const float> bias, int64_t rows, Global<Y> y, int64_t y_stride, bool adds) {
  const int64_t r = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (r >= rows) return;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * y_stride + r;
  const float b = bias[r];
  float sum = b;
  if (adds) {
    const Y before = y[at];
    sum = ToFloat(before) + b;
  }
  y[at] = FromFloat<Y>(sum);
}

// A block has a row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    QuantizeToFp8Kernel(Global<const T> x, int64_t cols, Global<e4m3> codes, Global<float> scales) {
  TACTUS_SHARED(float, warp_max, kThreads / 32);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * cols;
  const int thread = static_cast<int>(threadIdx.x);
  float most = 0.0f;
  for (int64_t c = thread; c < cols; c += kThreads) {
    const T v = x[first + c];
    most = fmaxf(most, fabsf(ToFloat(v)));
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
  if (thread % 32 == 0) warp_max[thread / 32] = most;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; ++warp) {
    const float other = warp_max[warp];
    most = fmaxf(most, other);
  }
  const float scale = most > 0.0f ? Div(most, kLargestE4M3) : 1.0f;
  if (thread == 0) scales[blockIdx.x] = scale;
  for (int64_t c = thread; c < cols; c += kThreads) {
    const T v = x[first + c];
    codes[first + c] = FromFloat<e4m3>(Div(ToFloat(v), scale));
  }
}

template <class Y>
__global__ void __launch_bounds__(kThreads)
    ScaleSumsKernel(Global<const float> sums, Global<const float> x_scales, Global<const float> w_scales,
                    bool one_w_scale, Global<const float> bias, int64_t rows, Global<Y> y, int64_t y_stride,
                    bool adds) {
  const int64_t t = blockIdx.x;
  const int64_t r = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (r >= rows) return;
  const float x_scale = x_scales[t];
  const float w_scale = w_scales[one_w_scale ? 0 : r];
  const float sum = sums[t * rows + r];
  float value = Mul(Mul(x_scale, w_scale), sum);
  if (bias.exists()) {
    const float b = bias[r];
    value = Add(value, b);
  }
  if (adds) {
    const Y before = y[t * y_stride + r];
    value = Add(ToFloat(before), value);
  }
  y[t * y_stride + r] = FromFloat<Y>(value);
}

// Calls f(T{}) with the type's values.
template <class F>
void With(Real type, F f) {
  if (type == Real::kF32) return f(float{});
  if (type == Real::kBF16) return f(bf16{});
  return f(f16{});
}

}  // namespace

void SpreadBias(Stream& s, const float* bias, int64_t tokens, int64_t rows, void* y, Real y_type, int64_t y_stride,
                bool adds) {
  With(y_type, [&](auto zero) {
    using Y = decltype(zero);
    Launch("SpreadBias", s, SpreadBiasKernel<Y>, GridOf(tokens, rows), kThreads, 0, Global<const float>(bias, rows),
           rows, Global<Y>(static_cast<Y*>(y)), y_stride, adds);
  });
}

void QuantizeToFp8(Stream& s, const void* x, Real type, int64_t tokens, int64_t cols, void* codes, float* scales) {
  With(type, [&](auto zero) {
    using T = decltype(zero);
    Launch("QuantizeToFp8", s, QuantizeToFp8Kernel<T>, dim3(static_cast<unsigned>(tokens)), kThreads, 0,
           Global<const T>(static_cast<const T*>(x), tokens * cols), cols,
           Global<e4m3>(static_cast<e4m3*>(codes), tokens * cols), Global<float>(scales, tokens));
  });
}

void ScaleSums(Stream& s, const ScaleCall& call) {
  With(call.y_type, [&](auto zero) {
    using Y = decltype(zero);
    Launch("ScaleSums", s, ScaleSumsKernel<Y>, GridOf(call.tokens, call.rows), kThreads, 0,
           Global<const float>(call.sums, call.tokens * call.rows), Global<const float>(call.x_scales, call.tokens),
           Global<const float>(call.w_scales, call.one_w_scale ? 1 : call.rows), call.one_w_scale,
           Global<const float>(call.bias, call.rows), call.rows, Global<Y>(static_cast<Y*>(call.y)), call.y_stride,
           call.adds);
  });
}

}  // namespace tactus::compute::cuda
