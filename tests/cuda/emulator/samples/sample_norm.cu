#include "samples.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    Norm(Global<const bf16> x, Global<const float> weight, int64_t dim, float eps, Global<bf16> out, Bug bug) {
  TACTUS_SHARED(float, sums, kThreads / 32);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * dim;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < dim; i += kThreads) {
    const float v = ToFloat(x[first + i]);
    sum += v * v;
  }
  if (bug == Bug::kDivergent && lane < 16) sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
  if (lane == 0) sums[warp] = sum;
  if (bug == Bug::kEarlyReturn && threadIdx.x == 7) return;
  if (bug != Bug::kNoBarrier) __syncthreads();
  float total = 0.0f;
  const int parts = kThreads / 32 + (bug == Bug::kOneTooMany ? 1 : 0);
  for (int i = 0; i < parts; ++i) total += sums[i];
  const float scale = rsqrtf(total / static_cast<float>(dim) + eps);
  for (int64_t i = threadIdx.x; i < dim; i += kThreads) {
    out[first + i] = FromFloat<bf16>(ToFloat(x[first + i]) * scale * weight[i]);
  }
}

}  // namespace

void SampleNorm(Stream& s, const void* x, const float* weight, int64_t tokens, int64_t dim, float eps, void* out,
                Bug bug) {
  Launch("Norm", s, Norm, dim3(static_cast<unsigned>(tokens)), kThreads, 0, static_cast<const bf16*>(x), weight, dim,
         eps, static_cast<bf16*>(out), bug);
}

}  // namespace tactus::compute::cuda
