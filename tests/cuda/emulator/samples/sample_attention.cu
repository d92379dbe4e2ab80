#include "samples.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kPage = 16, kThreads = 64;

// Pages [block, position, dim] of all heads; softmax page by page.
__global__ void __launch_bounds__(kThreads)
    Attend(Global<const float> q, Global<const float> k, Global<const float> v, Global<const int32_t> table, int length,
           int dim, Global<float> out, Bug bug) {
  TACTUS_SHARED(float, scores, kPage);
  const Shared<float> query = DynamicShared<float>(0, dim);
  const int head = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  for (int i = thread; i < dim; i += kThreads) query[i] = q[static_cast<int64_t>(head) * dim + i];
  __syncthreads();
  float most = -INFINITY, weights = 0.0f, sum = 0.0f;
  const int pages = (length + kPage - 1) / kPage + (bug == Bug::kOneTooMany ? 1 : 0);
  for (int page = 0; page < pages; ++page) {
    const int64_t first = static_cast<int64_t>(table[page]) * kPage * dim;
    for (int p = warp; p < kPage; p += kThreads / 32) {
      float dot = 0.0f;
      const bool inside = page * kPage + p < length;
      for (int i = lane; inside && i < dim; i += 32) dot += query[i] * k[first + p * dim + i];
      for (int by = 16; by > 0; by /= 2) dot += __shfl_down_sync(0xffffffffu, dot, static_cast<unsigned>(by));
      if (lane == 0) scores[p] = inside ? dot : -INFINITY;
    }
    __syncthreads();
    float best = most;
    for (int p = 0; p < kPage; ++p) best = fmaxf(best, scores[p]);
    const float old = __expf(most - best);
    weights *= old;
    sum *= old;
    for (int p = 0; p < kPage && page * kPage + p < length; ++p) {
      const float weight = __expf(scores[p] - best);
      weights += weight;
      if (thread < dim) sum += weight * v[first + p * dim + thread];
    }
    most = best;
    if (bug != Bug::kNoSecondBarrier) __syncthreads();
  }
  if (thread < dim) out[static_cast<int64_t>(head) * dim + thread] = sum / weights;
}

}  // namespace

void SampleAttention(Stream& s, const float* q, const float* k, const float* v, const int32_t* table, int64_t heads,
                     int32_t length, int32_t dim, float* out, Bug bug) {
  Launch("Attend", s, Attend, dim3(static_cast<unsigned>(heads)), kThreads, dim * 4, q, k, v, table, length, dim, out,
         bug);
}

}  // namespace tactus::compute::cuda
