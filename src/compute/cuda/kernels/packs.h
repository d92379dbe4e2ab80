// Device functions for kernels over rows: a few values at a time as f32, and sums over a warp or a block in a fixed
// order. For kernels' sources alone.
#pragma once

#include "compute/cuda/kernels/device.h"

namespace tactus::compute::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// N values as one load or store of up to 16 bytes.
template <class T, int N>
struct Pack {
  T v[N];
};
template <int kBytes>
struct PackWord;
template <>
struct PackWord<16> {
  using type = uint4;
};
template <>
struct PackWord<8> {
  using type = uint2;
};
template <>
struct PackWord<4> {
  using type = uint32_t;
};
template <>
struct PackWord<2> {
  using type = uint16_t;
};
template <>
struct PackWord<1> {
  using type = uint8_t;
};

// v = elements [i, i + N); N > 1: element i is aligned to 16 bytes, or to N values where those are fewer bytes.
template <int N, class T>
TACTUS_DEVICE void LoadValues(const Global<T>& from, int64_t i, float (&v)[N]) {
  using Value = std::remove_const_t<T>;
  constexpr int kBytes = static_cast<int>(sizeof(Value)) * N,
                kPart = kBytes < 16 ? N : 16 / static_cast<int>(sizeof(Value));
  if constexpr (N == 1) {
    const Value x = from[i];
    v[0] = ToFloat(x);
  } else {
#pragma unroll
    for (int at = 0; at < N; at += kPart) {
      using Word = typename PackWord<static_cast<int>(sizeof(Value)) * kPart>::type;
      const Word word = from.template Load<Word>(i + at);
      Pack<Value, kPart> pack;
      __builtin_memcpy(&pack, &word, sizeof word);
#pragma unroll
      for (int j = 0; j < kPart; ++j) v[at + j] = ToFloat(pack.v[j]);
    }
  }
}

// Elements [i, i + N) = v, rounded; aligned as for LoadValues.
template <int N, class T>
TACTUS_DEVICE void StoreValues(const Global<T>& to, int64_t i, const float (&v)[N]) {
  constexpr int kBytes = static_cast<int>(sizeof(T)) * N, kPart = kBytes < 16 ? N : 16 / static_cast<int>(sizeof(T));
  if constexpr (N == 1) {
    to[i] = FromFloat<T>(v[0]);
  } else {
#pragma unroll
    for (int at = 0; at < N; at += kPart) {
      Pack<T, kPart> pack;
#pragma unroll
      for (int j = 0; j < kPart; ++j) pack.v[j] = FromFloat<T>(v[at + j]);
      using Word = typename PackWord<static_cast<int>(sizeof(T)) * kPart>::type;
      Word word;
      __builtin_memcpy(&word, &pack, sizeof word);
      to.template Store<Word>(i + at, word);
    }
  }
}

// The sum over a warp's lanes, in every lane.
TACTUS_DEVICE float WarpSum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = Add(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// The sum over a block, in every thread. `parts` [kThreads / 32] is not used for another sum before a barrier.
template <int kThreads>
TACTUS_DEVICE float BlockSum(float x, const Shared<float>& parts) {
  const int thread = static_cast<int>(threadIdx.x);
  const float sum = WarpSum(x);
  if (thread % 32 == 0) parts[thread / 32] = sum;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) total = Add(total, parts[w]);
  return total;
}

// Whether rows at `p`, `bytes` apart, allow loads of 16 bytes; for the host.
inline bool IsAligned(const void* p, int64_t bytes = 0) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && bytes % 16 == 0;
}

}  // namespace tactus::compute::cuda
