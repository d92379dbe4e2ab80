// Layout of K and V in the paged cache. Only the kernels use it: other code copies whole blocks and reads their size
// (ops.h: KvBlockBytes).
//
// A head of a block holds head_dim x block_size elements of K, and as many of V in another array:
//   f32                 [block_size][head_dim]
//   bf16, int8 grouped  n = 2 elements of bf16, 4 of int8: those that a dot-product instruction multiplies for
//                       one sum:
//                       K [head_dim / n][block_size][n]: groups of dimensions, positions along the vector, for a
//                       broadcast group of q;
//                       V [block_size / n][head_dim][n]: groups of positions, for a broadcast group of weights
//   bf16, int8 plain    [block_size][head_dim], where n does not divide both: correct, slower
// int8: then [block_size] f32 scales, one per position; a value is code * scale, scale = max|x| / 127 over the head.
// SpreadHead rotates K before rounding: some of its dimensions are far larger than the rest and would dominate the
// scale. q rotated in the same way yields the same scores.
//
// Internal linkage on purpose, as in compute/tensor/float16.h: kernel files of every instruction set include this.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/ops.h"
#include "compute/tensor/float16.h"

namespace tactus::compute {
namespace {

constexpr int32_t kKvHeadDimMax = 512;  // kMaxHeadDim

// Elements per group, where K and V are grouped; f32 is not.
inline int32_t KvGroup(const KvLayer& kv) {
  return kv.dtype == DType::kInt8 ? 4 : 2;
}
inline bool KvGrouped(const KvLayer& kv) {
  const int32_t n = KvGroup(kv);
  return kv.dtype != DType::kF32 && kv.block_size % n == 0 && kv.head_dim % n == 0;
}

inline int64_t KvElementBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kBF16 ? 2 : 1;
}

// One head of one block, K or V.
inline int64_t KvHeadBytes(const KvLayer& kv) {
  const int64_t row = kv.head_dim * KvElementBytes(kv.dtype) + (kv.dtype == DType::kInt8 ? 4 : 0);
  return row * kv.block_size;
}

inline int64_t KvHeadOffset(const KvLayer& kv, int64_t block, int32_t head) {
  return (block * kv.kv_heads + head) * KvHeadBytes(kv);
}

// Index of an element within its head.
inline int64_t KeyIndex(const KvLayer& kv, int64_t offset, int64_t d) {
  const int64_t n = KvGroup(kv);
  return KvGrouped(kv) ? (d / n * kv.block_size + offset) * n + d % n : offset * kv.head_dim + d;
}
inline int64_t ValueIndex(const KvLayer& kv, int64_t offset, int64_t d) {
  const int64_t n = KvGroup(kv);
  return KvGrouped(kv) ? (offset / n * kv.head_dim + d) * n + offset % n : offset * kv.head_dim + d;
}

// int8: offset of a position's scale, in bytes from its head; unaligned for odd shapes.
inline int64_t KvScaleOffset(const KvLayer& kv, int64_t offset) {
  return static_cast<int64_t>(kv.block_size) * kv.head_dim + offset * 4;
}
inline float KvScale(const KvLayer& kv, const std::byte* head, int64_t offset) {
  float scale;
  std::memcpy(&scale, head + KvScaleOffset(kv, offset), sizeof scale);
  return scale;
}

// The element at `index` of a head; int8: the code, without its scale.
inline float KvElement(const KvLayer& kv, const std::byte* head, int64_t index) {
  switch (kv.dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(head)[index];
    case DType::kBF16:
      return BF16ToF32(reinterpret_cast<const uint16_t*>(head)[index]);
    default:
      return static_cast<float>(static_cast<int8_t>(head[index]));
  }
}

// Round to nearest even, |x| < 2^22.
inline float RoundEven(float x) {
  return (x + 12582912.0f) - 12582912.0f;
}

// Stores one position of one head: element d at index(d).
template <class Index>
inline void StoreKvHead(const KvLayer& kv, const float* from, int64_t offset, std::byte* head, Index index) {
  if (kv.dtype == DType::kF32) {
    auto* out = reinterpret_cast<float*>(head);
    for (int32_t d = 0; d < kv.head_dim; ++d) out[index(d)] = from[d];
    return;
  }
  if (kv.dtype == DType::kBF16) {
    auto* out = reinterpret_cast<uint16_t*>(head);
    for (int32_t d = 0; d < kv.head_dim; ++d) out[index(d)] = F32ToBF16(from[d]);
    return;
  }
  float largest = 0.0f;
  bool finite = true;
  for (int32_t d = 0; d < kv.head_dim; ++d) {
    const float magnitude = from[d] < 0.0f ? -from[d] : from[d];
    finite &= magnitude <= 3.4028234e38f;
    largest = magnitude > largest ? magnitude : largest;
  }
  const bool zero = largest < 1e-30f;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  // NaN and infinity make the scale NaN: codes alone would hide them.
  const float scale = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / 127.0f;
  std::memcpy(head + KvScaleOffset(kv, offset), &scale, sizeof scale);
  for (int32_t d = 0; d < kv.head_dim; ++d) {
    const float code = finite ? RoundEven(from[d] * inverse) : 0.0f;
    head[index(d)] = static_cast<std::byte>(static_cast<int8_t>(code));
  }
}

// Rotates a head by the Hadamard matrix of order n over sqrt(n), n the largest power of two that divides head_dim, n
// dimensions at a time: orthonormal and its own inverse (QuaRot, Ashkboos et al. 2024, uses it on K).
inline void SpreadHead(float* head, int32_t head_dim) {
  const int32_t n = head_dim & -head_dim;
  for (int32_t first = 0; first < head_dim; first += n) {
    for (int32_t half = 1; half < n; half *= 2) {
      for (int32_t i = first; i < first + n; i += 2 * half) {
        for (int32_t j = i; j < i + half; ++j) {
          const float a = head[j], b = head[j + half];
          head[j] = a + b;
          head[j + half] = a - b;
        }
      }
    }
  }
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(n));
  for (int32_t d = 0; d < head_dim; ++d) head[d] *= norm;
}

// The place of a token's K and V: slot = block * block_size + offset.
struct KvSlot {
  KvSlot(const KvLayer& kv, int64_t slot) : block(slot / kv.block_size), offset(slot % kv.block_size) {}
  int64_t block, offset;
};

inline void StoreKeyHead(const KvLayer& kv, const float* key, const KvSlot& to, int32_t h) {
  std::byte* head = static_cast<std::byte*>(kv.k) + KvHeadOffset(kv, to.block, h);
  float turned[kKvHeadDimMax];
  if (kv.dtype == DType::kInt8) {
    std::memcpy(turned, key, static_cast<size_t>(kv.head_dim) * sizeof(float));
    SpreadHead(turned, kv.head_dim);
    key = turned;
  }
  if (KvGrouped(kv)) {
    const int64_t n = KvGroup(kv), first = n * to.offset, stride = n * kv.block_size;
    StoreKvHead(kv, key, to.offset, head, [=](int64_t d) { return first + d / n * stride + d % n; });
  } else {
    const int64_t first = to.offset * kv.head_dim;
    StoreKvHead(kv, key, to.offset, head, [=](int64_t d) { return first + d; });
  }
}

inline void StoreValueHead(const KvLayer& kv, const float* value, const KvSlot& to, int32_t h) {
  std::byte* head = static_cast<std::byte*>(kv.v) + KvHeadOffset(kv, to.block, h);
  const int64_t step = KvGrouped(kv) ? KvGroup(kv) : 1;
  const int64_t first = to.offset / step * step * kv.head_dim + to.offset % step;
  StoreKvHead(kv, value, to.offset, head, [=](int64_t d) { return first + step * d; });
}

// Stores one token's K and V, [kv_heads * head_dim] each.
inline void StoreKvToken(const KvLayer& kv, const float* k, const float* v, int64_t slot) {
  const KvSlot to(kv, slot);
  for (int32_t h = 0; h < kv.kv_heads; ++h) {
    StoreKeyHead(kv, k + static_cast<int64_t>(h) * kv.head_dim, to, h);
    StoreValueHead(kv, v + static_cast<int64_t>(h) * kv.head_dim, to, h);
  }
}

}  // namespace
}  // namespace tactus::compute
