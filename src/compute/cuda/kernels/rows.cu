#include "compute/cuda/kernels/rows.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/packs.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowThreads = 128, kWideRowThreads = 512;  // of norms; the width of a row alone decides which
constexpr int64_t kWideRow = 1024;

// Blocks of kThreads threads, `each` values per thread.
dim3 BlocksFor(int64_t values, int64_t each) {
  const int64_t per_block = each * kThreads;
  return dim3(static_cast<unsigned>((values + per_block - 1) / per_block));
}

TACTUS_DEVICE int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Calls f(T{}) for the type of C++ that `type` stands for.
template <class F>
void WithType(Real type, const F& f) {
  if (type == Real::kF32) {
    f(float{});
  } else if (type == Real::kBF16) {
    f(bf16{});
  } else if constexpr (kHasKernels<f16>) {
    f(f16{});
  } else {
    LaunchMissing("a kernel of f16");
  }
}

// A row's pieces are blockIdx.y, so that any number of tokens fits into the grid.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) EmbedKernel(Global<const int32_t> ids, Global<const T> table, int64_t rows,
                                                        int64_t dim, float scale, Global<float> x) {
  const int64_t i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (i >= dim) return;
  const int64_t t = blockIdx.x;
  const int32_t id = ids[t];
  float v[N];
  LoadValues<N>(table, (id >= 0 && id < rows ? id : 0) * dim + i, v);
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] *= scale;
  StoreValues<N>(x, t * dim + i, v);
}

struct NormShape {
  int64_t dim, x_stride;
  bool layer;
  float eps;
};

// x and out may be the same memory: a thread reads an element again only before it writes it.
template <class In, class Out, int kBlock, int N>
__global__ void __launch_bounds__(kBlock) NormKernel(Global<In> x, NormShape shape, Global<const float> weight,
                                                     Global<const float> bias, Global<Out> out, int64_t out_stride) {
  TACTUS_SHARED(float, sums, kBlock / 32);
  TACTUS_SHARED(float, squares, kBlock / 32);
  const int64_t row = blockIdx.x * shape.x_stride, to = blockIdx.x * out_stride;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N, step = static_cast<int64_t>(kBlock) * N;
  const auto dim = static_cast<float>(shape.dim);
  float mean = 0.0f;
  if (shape.layer) {
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = first; i < shape.dim; i += step) {
      float v[N];
      LoadValues<N>(x, row + i, v);
#pragma unroll
      for (int j = 0; j < N; ++j) sum += v[j];
    }
    mean = Div(BlockSum<kBlock>(sum, sums), dim);
  }
  float square = 0.0f;
#pragma unroll 4
  for (int64_t i = first; i < shape.dim; i += step) {
    float v[N];
    LoadValues<N>(x, row + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) square = Fma(v[j] - mean, v[j] - mean, square);
  }
  const float inverse = Div(1.0f, sqrtf(Div(BlockSum<kBlock>(square, squares), dim) + shape.eps));
#pragma unroll 4
  for (int64_t i = first; i < shape.dim; i += step) {
    float v[N], w[N];
    LoadValues<N>(x, row + i, v);
    if (weight.exists()) LoadValues<N>(weight, i, w);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      v[j] = (v[j] - mean) * inverse;
      if (weight.exists()) v[j] *= w[j];
    }
    if (bias.exists()) {
      LoadValues<N>(bias, i, w);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] += w[j];
    }
    StoreValues<N>(out, to + i, v);
  }
}

template <class In, class Out, int N>
void LaunchNorm(Stream& s, In* x, const NormShape& shape, int64_t tokens, const float* weight, const float* bias,
                Out* out, int64_t out_stride) {
  const dim3 grid(static_cast<unsigned>(tokens));
  if (shape.dim <= kWideRow) {
    Launch("Norm", s, NormKernel<In, Out, kRowThreads, N>, grid, kRowThreads, 0, x, shape, weight, bias, out,
           out_stride);
  } else {
    Launch("Norm", s, NormKernel<In, Out, kWideRowThreads, N>, grid, kWideRowThreads, 0, x, shape, weight, bias, out,
           out_stride);
  }
}

// f(gate) * up, by the definitions of compute/tensor/activation.h.
template <Activation kF>
TACTUS_DEVICE float Activated(float gate, float up) {
  if constexpr (kF == Activation::kSilu) {
    return gate / (1.0f + expf(-gate)) * up;
  } else if constexpr (kF == Activation::kGeluErf) {
    return gate * 0.5f * erfcf(gate * -0.70710678f) * up;
  } else if constexpr (kF == Activation::kGeluTanh) {
    // (1 + tanh(u)) / 2 is the logistic function of 2 u, which loses no digits where tanh(u) is near -1.
    const float u = 0.79788456f * (gate + 0.044715f * gate * gate * gate);
    return gate / (1.0f + expf(-2.0f * u)) * up;
  } else if constexpr (kF == Activation::kRelu) {
    return fmaxf(gate, 0.0f) * up;
  } else if constexpr (kF == Activation::kRelu2) {
    return gate > 0.0f ? gate * gate * up : 0.0f * up;
  } else {
    const float g = fminf(gate, 7.0f), u = fminf(fmaxf(up, -7.0f), 7.0f);
    return g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
  }
}

// `out` may be the memory of gate or up: each thread reads its elements before it writes them.
template <class T, Activation kF, int N>
__global__ void __launch_bounds__(kThreads)
    ActivateKernel(Global<T> gate, Global<T> up, Global<float> up_f32, int64_t n, Global<T> out) {
  const int64_t i = GlobalThread() * N;
  if (i >= n) return;
  float g[N], u[N];
  LoadValues<N>(gate, i, g);
  if (up.exists()) {
    LoadValues<N>(up, i, u);
  } else if (up_f32.exists()) {
    LoadValues<N>(up_f32, i, u);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) u[j] = 1.0f;
  }
#pragma unroll
  for (int j = 0; j < N; ++j) g[j] = Activated<kF>(g[j], u[j]);
  StoreValues<N>(out, i, g);
}

template <class T, Activation kF>
void LaunchActivate(Stream& s, T* gate, T* up, float* up_f32, int64_t n, T* out, bool wide) {
  if (wide) {
    Launch("Activate", s, ActivateKernel<T, kF, 8>, BlocksFor(n, 8), kThreads, 0, gate, up, up_f32, n, out);
  } else {
    Launch("Activate", s, ActivateKernel<T, kF, 1>, BlocksFor(n, 1), kThreads, 0, gate, up, up_f32, n, out);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) CutGateKernel(Global<T> gate, int64_t dim, float cutoff) {
  TACTUS_SHARED(float, sums, kThreads / 32);
  TACTUS_SHARED(float, squares, kThreads / 32);
  const int64_t row = blockIdx.x * dim, first = static_cast<int64_t>(threadIdx.x) * N;
  float v[N], sum = 0.0f, square = 0.0f;
  for (int64_t i = first; i < dim; i += kThreads * N) {
    LoadValues<N>(gate, row + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += v[j];
  }
  const float mean = Div(BlockSum<kThreads>(sum, sums), static_cast<float>(dim));
  for (int64_t i = first; i < dim; i += kThreads * N) {
    LoadValues<N>(gate, row + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) square = Fma(v[j] - mean, v[j] - mean, square);
  }
  const float deviation = sqrtf(Div(BlockSum<kThreads>(square, squares), static_cast<float>(dim)));
  const float least = mean + deviation * cutoff;
  for (int64_t i = first; i < dim; i += kThreads * N) {
    LoadValues<N>(gate, row + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = fmaxf(v[j] - least, 0.0f);
    StoreValues<N>(gate, row + i, v);
  }
}

template <int N>
__global__ void __launch_bounds__(kThreads) AddKernel(Global<float> x, Global<const float> y, float factor, int64_t n) {
  const int64_t i = GlobalThread() * N;
  if (i >= n) return;
  float a[N], b[N];
  LoadValues<N>(x, i, a);
  LoadValues<N>(y, i, b);
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] = Fma(factor, b[j], a[j]);
  StoreValues<N>(x, i, a);
}

template <int N>
__global__ void __launch_bounds__(kThreads) ScaleKernel(Global<float> x, float factor, float softcap, int64_t n) {
  const int64_t i = GlobalThread() * N;
  if (i >= n) return;
  float v[N];
  LoadValues<N>(x, i, v);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    v[j] *= factor;
    if (softcap > 0.0f) v[j] = softcap * tanhf(v[j] / softcap);
  }
  StoreValues<N>(x, i, v);
}

// `out` may be the memory of x where T is float.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) ConvertKernel(Global<float> x, int64_t n, Global<T> out) {
  const int64_t i = GlobalThread() * N;
  if (i >= n) return;
  float v[N];
  LoadValues<N>(x, i, v);
  StoreValues<N>(out, i, v);
}

template <class Word>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(Global<const Word> from, int64_t from_stride, Global<const int32_t> rows, int64_t words, Global<Word> to,
               int64_t to_stride) {
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i >= words) return;
  const int64_t t = blockIdx.x;
  int64_t row = t;
  if (rows.exists()) row = rows[t];
  const Word v = from[row * from_stride + i];
  to[t * to_stride + i] = v;
}

// Strides and widths in bytes, multiples of Word's size.
template <class Word>
void LaunchCopy(Stream& s, const void* from, int64_t from_bytes, const int32_t* rows, int64_t tokens, int64_t bytes,
                void* to, int64_t to_bytes) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
  const int64_t words = bytes / kSize;
  const dim3 grid(static_cast<unsigned>(tokens), BlocksFor(words, 1).x);
  Launch("CopyRows", s, CopyKernel<Word>, grid, kThreads, 0, static_cast<const Word*>(from), from_bytes / kSize, rows,
         words, static_cast<Word*>(to), to_bytes / kSize);
}

constexpr int kMostStreams = 8;  // kMaxStreams of compute/config/config.h

// One thread per token and dimension: it has that dimension of all streams.
template <int kStreams>
__global__ void __launch_bounds__(kThreads)
    PredictKernel(Global<float> streams, Global<float> active, Global<const float> coefficients, int64_t dim) {
  const int64_t d = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x, t = blockIdx.x;
  if (d >= dim) return;
  const int64_t first = t * kStreams * dim + d, c = t * kStreams * kStreams;
  float before[kStreams];
#pragma unroll
  for (int k = 0; k < kStreams; ++k) before[k] = streams[first + k * dim];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kStreams; ++k) sum = Fma(coefficients[c + i * kStreams + k], before[k], sum);
    streams[first + i * dim] = before[i] + sum;
    if (i == 0) active[t * dim + d] = before[0] + sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    CorrectKernel(Global<float> streams, Global<float> active, Global<const float> coefficients,
                  Global<const float> scale, int64_t n, int64_t dim) {
  const int64_t d = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x, t = blockIdx.x;
  if (d >= dim) return;
  const int64_t first = t * n * dim + d;
  const float was = streams[first], now = active[t * dim + d], change = now - was;
  for (int64_t i = 0; i < n; ++i) {
    const float before = streams[first + i * dim], c = coefficients[t * n + i];
    const float after = Fma(change, c + 1.0f, before);
    streams[first + i * dim] = after;
    if (i == 0) active[t * dim + d] = after * scale[d];
  }
}

template <int kStreams>
void LaunchPredict(Stream& s, const StreamsCall& call) {
  if (call.n == kStreams) {
    const dim3 grid(static_cast<unsigned>(call.tokens), BlocksFor(call.dim, 1).x);
    Launch("PredictStreams", s, PredictKernel<kStreams>, grid, kThreads, 0, call.streams, call.active,
           call.coefficients, call.dim);
  } else if constexpr (kStreams < kMostStreams) {
    LaunchPredict<kStreams + 1>(s, call);
  }
}

}  // namespace

void EmbedRows(Stream& s, const int32_t* ids, int64_t tokens, const void* table, Real type, int64_t rows, int64_t dim,
               float scale, float* x) {
  WithType(type, [&](auto value) {
    using T = decltype(value);
    const auto* const from = static_cast<const T*>(table);
    const bool wide = IsAligned(table, dim * SizeOf(type)) && IsAligned(x, dim * 4) && dim % 8 == 0;
    const int64_t each = wide ? 8 : 1;
    const dim3 grid(static_cast<unsigned>(tokens), BlocksFor(dim, each).x);
    if (wide) {
      Launch("EmbedRows", s, EmbedKernel<T, 8>, grid, kThreads, 0, ids, from, rows, dim, scale, x);
    } else {
      Launch("EmbedRows", s, EmbedKernel<T, 1>, grid, kThreads, 0, ids, from, rows, dim, scale, x);
    }
  });
}

void NormRows(Stream& s, const NormCall& call) {
  const int64_t x_stride = call.x_stride == 0 ? call.dim : call.x_stride;
  const NormShape shape{call.dim, x_stride, call.layer, call.eps};
  WithType(call.out_type, [&](auto value) {
    using T = decltype(value);
    auto* const x = const_cast<float*>(call.x);
    auto* const out = static_cast<T*>(call.out);
    const float* const bias = call.layer ? call.bias : nullptr;
    const bool wide =
        call.dim % 4 == 0 && IsAligned(x, x_stride * 4) && IsAligned(out) && IsAligned(call.weight) && IsAligned(bias);
    if (wide) {
      LaunchNorm<float, T, 4>(s, x, shape, call.tokens, call.weight, bias, out, call.dim);
    } else {
      LaunchNorm<float, T, 1>(s, x, shape, call.tokens, call.weight, bias, out, call.dim);
    }
  });
}

void NormTyped(Stream& s, void* x, Real type, int64_t tokens, int64_t dim, const float* weight, float eps) {
  const NormShape shape{dim, dim, false, eps};
  WithType(type, [&](auto value) {
    using T = decltype(value);
    constexpr int kWide = sizeof(T) == 4 ? 4 : 8;
    auto* const row = static_cast<T*>(x);
    const float* const bias = nullptr;
    if (dim % 8 == 0 && IsAligned(x) && IsAligned(weight)) {
      LaunchNorm<T, T, kWide>(s, row, shape, tokens, weight, bias, row, dim);
    } else {
      LaunchNorm<T, T, 1>(s, row, shape, tokens, weight, bias, row, dim);
    }
  });
}

void Activate(Stream& s, Activation f, const void* gate, const void* up, Real type, int64_t n, void* out, bool up_f32) {
  const bool wide = n % 8 == 0 && IsAligned(gate) && IsAligned(up) && IsAligned(out);
  WithType(type, [&](auto value) {
    using T = decltype(value);
    auto* const g = static_cast<T*>(const_cast<void*>(gate));
    auto* const u = up_f32 ? nullptr : static_cast<T*>(const_cast<void*>(up));
    auto* const u32 = up_f32 ? static_cast<float*>(const_cast<void*>(up)) : nullptr;
    auto* const to = static_cast<T*>(out);
    switch (f) {
      case Activation::kSilu:
        return LaunchActivate<T, Activation::kSilu>(s, g, u, u32, n, to, wide);
      case Activation::kGeluErf:
        return LaunchActivate<T, Activation::kGeluErf>(s, g, u, u32, n, to, wide);
      case Activation::kGeluTanh:
        return LaunchActivate<T, Activation::kGeluTanh>(s, g, u, u32, n, to, wide);
      case Activation::kRelu:
        return LaunchActivate<T, Activation::kRelu>(s, g, u, u32, n, to, wide);
      case Activation::kRelu2:
        return LaunchActivate<T, Activation::kRelu2>(s, g, u, u32, n, to, wide);
      case Activation::kClampedSwiglu:
        return LaunchActivate<T, Activation::kClampedSwiglu>(s, g, u, u32, n, to, wide);
    }
  });
}

void CutGate(Stream& s, void* gate, Real type, int64_t tokens, int64_t dim, float cutoff) {
  const dim3 grid(static_cast<unsigned>(tokens));
  WithType(type, [&](auto value) {
    using T = decltype(value);
    auto* const row = static_cast<T*>(gate);
    if (dim % 8 == 0 && IsAligned(gate)) {
      Launch("CutGate", s, CutGateKernel<T, 8>, grid, kThreads, 0, row, dim, cutoff);
    } else {
      Launch("CutGate", s, CutGateKernel<T, 1>, grid, kThreads, 0, row, dim, cutoff);
    }
  });
}

void AddRows(Stream& s, float* x, const float* y, float factor, int64_t n) {
  if (n % 4 == 0 && IsAligned(x) && IsAligned(y)) {
    Launch("AddRows", s, AddKernel<4>, BlocksFor(n, 4), kThreads, 0, x, y, factor, n);
  } else {
    Launch("AddRows", s, AddKernel<1>, BlocksFor(n, 1), kThreads, 0, x, y, factor, n);
  }
}

void ScaleRows(Stream& s, float* x, float factor, float softcap, int64_t n) {
  if (n % 4 == 0 && IsAligned(x)) {
    Launch("ScaleRows", s, ScaleKernel<4>, BlocksFor(n, 4), kThreads, 0, x, factor, softcap, n);
  } else {
    Launch("ScaleRows", s, ScaleKernel<1>, BlocksFor(n, 1), kThreads, 0, x, factor, softcap, n);
  }
}

void ConvertRows(Stream& s, const float* x, int64_t n, Real type, void* out) {
  auto* const from = const_cast<float*>(x);
  WithType(type, [&](auto value) {
    using T = decltype(value);
    auto* const to = static_cast<T*>(out);
    if (n % 8 == 0 && IsAligned(x) && IsAligned(out)) {
      Launch("ConvertRows", s, ConvertKernel<T, 8>, BlocksFor(n, 8), kThreads, 0, from, n, to);
    } else {
      Launch("ConvertRows", s, ConvertKernel<T, 1>, BlocksFor(n, 1), kThreads, 0, from, n, to);
    }
  });
}

void CopyRows(Stream& s, const void* from, int64_t from_stride, const int32_t* rows, int64_t tokens, int64_t dim,
              int32_t value_bytes, void* to, int64_t to_stride) {
  const int64_t bytes = dim * value_bytes, from_bytes = from_stride * value_bytes, to_bytes = to_stride * value_bytes;
  // All that the words' size must divide.
  const uint64_t all = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) |
                       static_cast<uint64_t>(bytes | from_bytes | to_bytes);
  if (all % 16 == 0) {
    LaunchCopy<uint4>(s, from, from_bytes, rows, tokens, bytes, to, to_bytes);
  } else if (all % 4 == 0) {
    LaunchCopy<uint32_t>(s, from, from_bytes, rows, tokens, bytes, to, to_bytes);
  } else {
    LaunchCopy<uint8_t>(s, from, from_bytes, rows, tokens, bytes, to, to_bytes);
  }
}

void PredictStreams(Stream& s, const StreamsCall& call) {
  LaunchPredict<1>(s, call);
}

void CorrectStreams(Stream& s, const StreamsCall& call) {
  const dim3 grid(static_cast<unsigned>(call.tokens), BlocksFor(call.dim, 1).x);
  Launch("CorrectStreams", s, CorrectKernel, grid, kThreads, 0, call.streams, call.active, call.coefficients,
         call.scale, call.n, call.dim);
}

}  // namespace tactus::compute::cuda
