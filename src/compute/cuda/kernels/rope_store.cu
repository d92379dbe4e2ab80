#include "compute/cuda/kernels/rope_store.h"

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/launch.h"
#include "compute/cuda/kernels/packs.h"

namespace tactus::compute::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kHeadsPerBlock = 2 * kWarps;  // of q, k and v
constexpr int kCopyThreads = 128;

// What the kernel needs of RopeStore and KvPages besides addresses.
struct Shape {
  int64_t q_stride, k_stride, v_stride;
  int32_t heads, kv_heads, head_dim;
  uint32_t block_size;
  int32_t rotary_dim;  // 0: no rotation
  float attention_scale, eps;
  bool interleaved, qk_norm, norms_last, v_norm, stores;
  float query_beta;
  uint32_t query_length, query_offset;
};

// Sine and cosine of any angle below 2^30, within 2 units in the last place. The angle is reduced in double: its error
// is then below 2^-23 of what f32 can show, while sincosf needs memory of the thread for large angles.
TACTUS_DEVICE void SineAndCosine(float angle, float* sine, float* cosine) {
  const double turns = rint(static_cast<double>(angle) * 0.63661977236758134);  // quarters
  double r = fma(-turns, 1.5707963267948966, static_cast<double>(angle));
  r = fma(-turns, 6.1232339957367660e-17, r);
  const auto x = static_cast<float>(r);  // |x| <= pi / 4: Taylor's series
  const float z = x * x;
  const float s =
      Fma(Fma(Fma(Fma(2.75573192e-6f, z, -1.98412698e-4f), z, 8.33333333e-3f), z, -1.66666667e-1f), x * z, x);
  const float c = Fma(Fma(Fma(Fma(-2.75573192e-7f, z, 2.48015873e-5f), z, -1.38888889e-3f), z, 4.16666667e-2f), z * z,
                      Fma(-0.5f, z, 1.0f));
  const int quarter = static_cast<int>(static_cast<int64_t>(turns) & 3);
  const float at = quarter % 2 == 0 ? s : c, beside = quarter % 2 == 0 ? c : s;
  *sine = quarter >= 2 ? -at : at;
  *cosine = quarter == 1 || quarter == 2 ? -beside : beside;
}

TACTUS_DEVICE float QueryFactor(const Shape& shape, int32_t position) {
  if (shape.query_beta == 0.0f) return 1.0f;
  const uint32_t lengths = static_cast<uint32_t>(position + shape.query_offset) / shape.query_length;
  return 1.0f + shape.query_beta * logf(1.0f + static_cast<float>(lengths));
}

// One head of q, k or v in shared memory, which one warp changes. Lane l loads and stores elements [N * l, N * l + N)
// of each 32 * N; between steps that go by other elements the warp synchronises.
template <int N>
struct Head {
  Shared<float> values;
  int first, dim;  // its elements are values[first, first + dim)
  int lane;

  TACTUS_DEVICE float At(int d) const { return values[first + d]; }
  TACTUS_DEVICE void Set(int d, float x) const { values[first + d] = x; }

  template <class T>
  TACTUS_DEVICE void Load(const Global<T>& from, int64_t at) const {
    for (int d = lane * N; d < dim; d += 32 * N) {
      float v[N];
      LoadValues<N>(from, at + d, v);
#pragma unroll
      for (int j = 0; j < N; ++j) Set(d + j, v[j]);
    }
    __syncwarp();
  }

  template <class T>
  TACTUS_DEVICE void Store(const Global<T>& to, int64_t at, float factor) const {
    for (int d = lane * N; d < dim; d += 32 * N) {
      float v[N];
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = At(d + j) * factor;
      StoreValues<N>(to, at + d, v);
    }
  }

  // RMSNorm; no weight: 1.
  TACTUS_DEVICE void Norm(const Global<const float>& weight, float eps) const {
    float sum = 0.0f;
    for (int d = lane; d < dim; d += 32) {
      const float x = At(d);
      sum = Fma(x, x, sum);
    }
    const float inverse = Div(1.0f, sqrtf(Div(WarpSum(sum), static_cast<float>(dim)) + eps));
    for (int d = lane; d < dim; d += 32) {
      float x = At(d) * inverse;
      if (weight.exists()) x *= weight[d];
      Set(d, x);
    }
    __syncwarp();
  }

  // turns[i], turns[pairs + i]: cosine and sine of pair i.
  TACTUS_DEVICE void Rotate(const Shared<float>& turns, int pairs, bool interleaved) const {
    for (int i = lane; i < pairs; i += 32) {
      const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + pairs;
      const float p = At(a), q = At(b), cosine = turns[i], sine = turns[pairs + i];
      Set(a, Fma(p, cosine, -(q * sine)));
      Set(b, Fma(q, cosine, p * sine));
    }
    __syncwarp();
  }

  // Multiplies with the Hadamard matrix of order n over sqrt(n), n the largest power of two that divides `dim`, n
  // elements at a time: SpreadHead (compute/kernels/attention/kv_layout.h), with its bits.
  TACTUS_DEVICE void Spread() const {
    const int n = dim & -dim;
    for (int half = 1; half < n; half *= 2) {
      for (int pair = lane; pair < dim / 2; pair += 32) {
        const int at = pair / half * 2 * half + pair % half;
        const float a = At(at), b = At(at + half);
        Set(at, Add(a, b));
        Set(at + half, Add(a, -b));
      }
      __syncwarp();
    }
    const float norm = Div(1.0f, sqrtf(static_cast<float>(n)));
    for (int d = lane; d < dim; d += 32) Set(d, Mul(At(d), norm));
    __syncwarp();
  }

  // Codes and their scale: StoreKvHead (compute/kernels/attention/kv_layout.h).
  TACTUS_DEVICE void StoreCodes(const Global<int8_t>& to, int64_t at, const Global<float>& scales, int64_t slot) const {
    float largest = 0.0f;
    bool finite = true;
    for (int d = lane; d < dim; d += 32) {
      const float magnitude = fabsf(At(d));
      finite = finite && magnitude <= 3.4028234e38f;
      largest = fmaxf(largest, magnitude);
    }
    finite = __all_sync(kAllLanes, finite ? 1 : 0) != 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
    const bool zero = largest < 1e-30f;
    const float inverse = zero ? 0.0f : Div(127.0f, largest);
    // NaN and infinity make the scale NaN: codes alone would hide them.
    if (lane == 0) scales[slot] = !finite ? __uint_as_float(0x7fc00000u) : zero ? 0.0f : Div(largest, 127.0f);
    for (int d = lane * N; d < dim; d += 32 * N) {
      float v[N];
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = finite ? Mul(At(d + j), inverse) : 0.0f;
      StoreValues<N>(to, at + d, v);
    }
  }
};

template <class Kv>
struct Pages {
  Global<Kv> values;
  Global<float> scales;
};

// Block (t, part) has heads [part * kHeadsPerBlock, ...) of token t: those of q, then of k, then of v.
template <class T, class Kv, int N>
__global__ void __launch_bounds__(kThreads, 4)
    RopeStoreKernel(Global<T> q, Global<T> k, Global<T> v, Global<const int32_t> positions, Global<const int64_t> slots,
                    Global<const float> inv_freq, Global<const float> q_norm, Global<const float> k_norm, Shape shape,
                    Pages<Kv> k_pages, Pages<Kv> v_pages) {
  const int thread = static_cast<int>(threadIdx.x), pairs = shape.rotary_dim / 2;
  const Shared<float> turns = DynamicShared<float>(0, (shape.rotary_dim + 3) / 4 * 4);
  const Shared<float> memory = DynamicShared<float>((shape.rotary_dim + 3) / 4 * 16, kWarps * shape.head_dim);
  const int64_t t = blockIdx.x;
  const int32_t position = positions[t];
  for (int i = thread; i < pairs; i += kThreads) {
    float sine, cosine;
    SineAndCosine(Mul(static_cast<float>(position), inv_freq[i]), &sine, &cosine);
    turns[i] = cosine * shape.attention_scale;
    turns[pairs + i] = sine * shape.attention_scale;
  }
  __syncthreads();
  const Head<N> head{memory, thread / 32 * shape.head_dim, shape.head_dim, thread % 32};
  const int all = shape.heads + (shape.stores ? 2 * shape.kv_heads : 0);
  const int end = min(all, (static_cast<int>(blockIdx.y) + 1) * kHeadsPerBlock);
  for (int h = static_cast<int>(blockIdx.y) * kHeadsPerBlock + thread / 32; h < end; h += kWarps) {
    const bool is_q = h < shape.heads, is_k = !is_q && h < shape.heads + shape.kv_heads;
    const int kv_head = is_k ? h - shape.heads : h - shape.heads - shape.kv_heads;
    const bool turns_head = is_q || is_k;
    Global<T> from = q;
    Global<const float> weight = q_norm;
    int64_t at = t * shape.q_stride + static_cast<int64_t>(h) * shape.head_dim;
    if (is_k) from = k, weight = k_norm, at = t * shape.k_stride + static_cast<int64_t>(kv_head) * shape.head_dim;
    if (!turns_head) {
      from = v, weight = Global<const float>();
      at = t * shape.v_stride + static_cast<int64_t>(kv_head) * shape.head_dim;
    }
    head.Load(from, at);
    if (turns_head && shape.qk_norm && !shape.norms_last) head.Norm(weight, shape.eps);
    if (turns_head) head.Rotate(turns, pairs, shape.interleaved);
    if (turns_head ? shape.qk_norm && shape.norms_last : shape.v_norm) head.Norm(weight, shape.eps);
    if (std::is_same_v<Kv, int8_t> && turns_head) head.Spread();
    if (is_q) {
      head.Store(q, at, QueryFactor(shape, position));
    } else {
      const int64_t slot = slots[t], block = static_cast<uint32_t>(slot) / shape.block_size;  // 64 bits divide slowly
      const int64_t row = slot + (block * (shape.kv_heads - 1) + kv_head) * shape.block_size;
      const Global<Kv> values = is_k ? k_pages.values : v_pages.values;
      if constexpr (std::is_same_v<Kv, int8_t>) {
        const Global<float> scales = is_k ? k_pages.scales : v_pages.scales;
        head.StoreCodes(values, row * shape.head_dim, scales, row);
      } else {
        head.Store(values, row * shape.head_dim, 1.0f);
      }
    }
    __syncwarp();
  }
}

template <class T, class Kv>
void LaunchRopeStore(Stream& s, const RopeStore& call, const Shape& shape, const KvPages& kv) {
  const int all = shape.heads + (shape.stores ? 2 * shape.kv_heads : 0);
  const dim3 grid(static_cast<unsigned>(call.tokens),
                  static_cast<unsigned>((all + kHeadsPerBlock - 1) / kHeadsPerBlock));
  const int shared_bytes = (shape.rotary_dim + 3) / 4 * 16 + kWarps * shape.head_dim * 4;
  const Pages<Kv> k_pages{static_cast<Kv*>(kv.k), kv.k_scales}, v_pages{static_cast<Kv*>(kv.v), kv.v_scales};
  const bool wide = shape.head_dim % 8 == 0 && IsAligned(call.q, shape.q_stride * SizeOf(call.type)) &&
                    IsAligned(call.k, shape.k_stride * SizeOf(call.type)) &&
                    IsAligned(call.v, shape.v_stride * SizeOf(call.type));
  const auto launch = [&](auto kernel) {
    Launch("RopeAndStore", s, kernel, grid, kThreads, shared_bytes, static_cast<T*>(call.q),
           static_cast<T*>(const_cast<void*>(call.k)), static_cast<T*>(const_cast<void*>(call.v)), call.positions,
           call.slots, call.inv_freq, call.q_norm, call.k_norm, shape, k_pages, v_pages);
  };
  if (wide) {
    launch(RopeStoreKernel<T, Kv, 4>);
  } else {
    launch(RopeStoreKernel<T, Kv, 1>);
  }
}

template <class T>
void LaunchForKv(Stream& s, const RopeStore& call, const Shape& shape, const KvPages& kv) {
  if constexpr (kHasKernels<T>) {
    switch (kv.type) {
      case KvType::kF32:
        return LaunchRopeStore<T, float>(s, call, shape, kv);
      case KvType::kBF16:
        return LaunchRopeStore<T, bf16>(s, call, shape, kv);
      case KvType::kF16:
        if constexpr (kHasKernels<f16>) return LaunchRopeStore<T, f16>(s, call, shape, kv);
        break;
      case KvType::kInt8:
        return LaunchRopeStore<T, int8_t>(s, call, shape, kv);
      case KvType::kFp8:
        return LaunchRopeStore<T, e4m3>(s, call, shape, kv);
    }
  }
  LaunchMissing("RopeAndStore");
}

// A thread has some words of every page and copies them pair by pair, so no copy needs another thread's.
template <class Word>
__global__ void __launch_bounds__(kCopyThreads)
    CopyPagesKernel(Global<const int32_t> pairs, int64_t n, int64_t words, Global<Word> k, Global<Word> v) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kCopyThreads + threadIdx.x;
  if (i >= words) return;
  const Global<Word> pages = blockIdx.y == 0 ? k : v;
  for (int64_t pair = 0; pair < n; ++pair) {
    const int64_t from = pairs[2 * pair], to = pairs[2 * pair + 1];
    pages[to * words + i] = pages[from * words + i];
  }
}

// Pieces of `bytes` at k and v, one per block of the cache.
void LaunchCopy(Stream& s, const int32_t* pairs, int64_t n, int64_t bytes, void* k, void* v) {
  const auto launch = [&](auto word) {
    using Word = decltype(word);
    const int64_t words = bytes / static_cast<int64_t>(sizeof(Word));
    const dim3 grid(static_cast<unsigned>((words + kCopyThreads - 1) / kCopyThreads), 2);
    Launch("CopyPages", s, CopyPagesKernel<Word>, grid, kCopyThreads, 0, pairs, n, words, static_cast<Word*>(k),
           static_cast<Word*>(v));
  };
  if (IsAligned(k, bytes) && IsAligned(v)) {
    launch(uint4{});
  } else {
    launch(uint8_t{});
  }
}

}  // namespace

void RopeAndStore(Stream& s, const RopeStore& call, const KvPages& kv) {
  Shape shape{};
  shape.q_stride = call.q_stride, shape.k_stride = call.k_stride, shape.v_stride = call.v_stride;
  shape.heads = call.heads, shape.kv_heads = kv.kv_heads, shape.head_dim = kv.head_dim;
  shape.block_size = static_cast<uint32_t>(kv.block_size);
  shape.rotary_dim = call.inv_freq == nullptr ? 0 : call.rotary_dim;
  shape.attention_scale = call.attention_scale, shape.eps = call.eps;
  shape.interleaved = call.interleaved;
  shape.qk_norm = call.qk_norm, shape.norms_last = call.norms_last, shape.v_norm = call.v_norm;
  shape.stores = call.k != nullptr;
  shape.query_beta = call.query_beta;
  shape.query_length = static_cast<uint32_t>(call.query_length);
  shape.query_offset = static_cast<uint32_t>(call.query_offset);
  if (call.type == Real::kF32) {
    LaunchForKv<float>(s, call, shape, kv);
  } else if (call.type == Real::kBF16) {
    LaunchForKv<bf16>(s, call, shape, kv);
  } else {
    LaunchForKv<f16>(s, call, shape, kv);
  }
}

void CopyPages(Stream& s, const int32_t* pairs, int64_t n, const KvPages& kv) {
  const int64_t positions = int64_t{kv.kv_heads} * kv.block_size;
  LaunchCopy(s, pairs, n, positions * kv.head_dim * SizeOf(kv.type), kv.k, kv.v);
  if (kv.type == KvType::kInt8) LaunchCopy(s, pairs, n, positions * 4, kv.k_scales, kv.v_scales);
}

}  // namespace tactus::compute::cuda
