#include "compute/cuda/kernels/streams.h"

#include "compute/cuda/kernels/launch.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kLeastMeanSquare = 1e-5f;  // of a row that is scaled to another's magnitude

unsigned BlocksFor(int64_t n) {
  return static_cast<unsigned>((n + kThreads - 1) / kThreads);
}

__global__ void __launch_bounds__(kThreads) Tanh(Global<float> x, float scale, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  x[i] = tanhf(v * scale);
}

// The sum over the block's threads, in an order that depends on kThreads alone.
TACTUS_DEVICE float BlockSum(float v, const Shared<float>& parts) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  __syncthreads();  // the parts of an earlier sum have been read
  if (threadIdx.x % 32 == 0) parts[static_cast<int>(threadIdx.x / 32)] = v;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) {
    const float part = parts[i];
    sum += part;
  }
  return sum;
}

// A block per row.
__global__ void __launch_bounds__(kThreads) Match(Global<const float> like, int64_t like_stride, Global<const float> x,
                                                  int dim, Global<float> out, int64_t out_stride, bool adds) {
  TACTUS_SHARED(float, parts, kThreads / 32);
  const int64_t row = blockIdx.x;
  float like_squares = 0.0f, squares = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
    const float l = like[row * like_stride + i], v = x[row * dim + i];
    like_squares += l * l;
    squares += v * v;
  }
  const float size = static_cast<float>(dim);
  const float wanted = BlockSum(like_squares, parts) / size, have = BlockSum(squares, parts) / size;
  const float scale = sqrtf(wanted) / sqrtf(fmaxf(have, kLeastMeanSquare));
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
    const float v = x[row * dim + i];
    float sum = v * scale;
    if (adds) {
      const float before = out[row * out_stride + i];
      sum += before;
    }
    out[row * out_stride + i] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    AddToOthers(Global<const float> x, int64_t values, int n, int dim, Global<float> streams) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= values) return;
  const int64_t token = i / dim, at = i % dim;
  const float v = x[i];
  for (int k = 1; k < n; ++k) {
    const int64_t to = (token * n + k) * dim + at;
    const float before = streams[to];
    streams[to] = before + v;
  }
}

}  // namespace

void TanhRows(Stream& s, float* x, float scale, int64_t n) {
  Launch("Tanh", s, Tanh, dim3(BlocksFor(n)), kThreads, 0, x, scale, n);
}

void MatchMagnitude(Stream& s, const MatchCall& c) {
  Launch("Match", s, Match, dim3(static_cast<unsigned>(c.tokens)), kThreads, 0, c.like, c.like_stride, c.x,
         static_cast<int>(c.dim), c.out, c.out_stride, c.adds);
}

void AddToOtherStreams(Stream& s, const float* x, int64_t tokens, int64_t n, int64_t dim, float* streams) {
  Launch("AddToOthers", s, AddToOthers, dim3(BlocksFor(tokens * dim)), kThreads, 0, x, tokens * dim,
         static_cast<int>(n), static_cast<int>(dim), streams);
}

}  // namespace tactus::compute::cuda
