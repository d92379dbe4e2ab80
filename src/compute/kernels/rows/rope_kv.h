// Rotary embedding and the writes of K and V into the paged cache, separately and in one pass, written once over
// simd/simd.h. A token's result depends on that token alone, and RopeStore yields the same bits as RmsNorm, Rope and
// StoreKv in sequence.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/rows/row_kernel.h"

namespace tactus::compute {
namespace {

// One head: pairs (a[i], b[i]) with a and b `half` apart, or neighbours. out may be head.
inline void RotateHead(const float* head, const RopeTable& rope, const float* cosines, const float* sines, float* out) {
  const int32_t half = rope.rotary_dim / 2;
  if (rope.interleaved) {
    for (int32_t i = 0; i < half; ++i) {
      const float p = head[2 * i], q = head[2 * i + 1];
      out[2 * i] = p * cosines[i] - q * sines[i];
      out[2 * i + 1] = q * cosines[i] + p * sines[i];
    }
    return;
  }
  ForVectors(half, [&](int64_t i, int n) {
    const Simd::F p = LoadFirst(head + i, n), q = LoadFirst(head + half + i, n);
    const Simd::F c = LoadFirst(cosines + i, n), s = LoadFirst(sines + i, n);
    StoreFirst(out + i, Simd::Sub(Simd::Mul(p, c), Simd::Mul(q, s)), n);
    StoreFirst(out + half + i, Simd::Add(Simd::Mul(q, c), Simd::Mul(p, s)), n);
  });
}

void Rope(ThreadPool& pool, float* q, float* k, const int32_t* positions, int64_t tokens, int32_t heads,
          int32_t kv_heads, int32_t head_dim, const RopeTable& rope) {
  CheckHeadDim(head_dim, rope.rotary_dim);
  ForRows(pool, tokens, static_cast<int64_t>(heads + kv_heads) * head_dim, [&](int64_t t) {
    float cosines[kMaxHeadDim / 2], sines[kMaxHeadDim / 2];
    RopeAngles(rope, positions[t], cosines, sines);
    for (int32_t h = 0; h < heads + kv_heads; ++h) {
      float* head = h < heads ? q + (t * heads + h) * head_dim : k + (t * kv_heads + h - heads) * head_dim;
      RotateHead(head, rope, cosines, sines, head);
    }
  });
}

void StoreKv(ThreadPool& pool, const float* k, const float* v, const int64_t* slots, int64_t tokens,
             const KvLayer& kv) {
  const int64_t row = static_cast<int64_t>(kv.kv_heads) * kv.head_dim;
  ForRows(pool, tokens, 2 * row, [&](int64_t t) { StoreKvToken(kv, k + t * row, v + t * row, slots[t]); });
}

// Norm and rotation of a head of q or k. out may be head.
inline void TurnHead(const RopeStoreCall& call, const float* head, int32_t head_dim, const float* norm,
                     const float* cosines, const float* sines, float* out) {
  if (call.qk_norm && !call.norms_last) {
    NormRow(head, head_dim, norm, call.eps, out);
  } else if (out != head) {
    std::memcpy(out, head, static_cast<size_t>(head_dim) * sizeof(float));
  }
  RotateHead(out, call.rope, cosines, sines, out);
  if (call.qk_norm && call.norms_last) NormRow(out, head_dim, norm, call.eps, out);
}

inline void ScaleHead(float* head, int32_t head_dim, float factor) {
  const Simd::F f = Simd::Set1(factor);
  ForVectors(head_dim, [&](int64_t i, int n) { StoreFirst(head + i, Simd::Mul(LoadFirst(head + i, n), f), n); });
}

void RopeStore(ThreadPool& pool, const RopeStoreCall& call, const KvLayer& kv) {
  const int32_t head_dim = kv.head_dim, stored_heads = call.k != nullptr ? kv.kv_heads : 0;
  CheckHeadDim(head_dim, call.rope.rotary_dim);
  ForRows(pool, call.tokens, static_cast<int64_t>(call.heads + 2 * stored_heads) * head_dim, [&](int64_t t) {
    float cosines[kMaxHeadDim / 2], sines[kMaxHeadDim / 2], turned[kMaxHeadDim];
    RopeAngles(call.rope, call.positions[t], cosines, sines);
    const float factor = call.query_scale.At(call.positions[t]);
    for (int32_t h = 0; h < call.heads; ++h) {
      float* head = call.q + t * call.q_stride + static_cast<int64_t>(h) * head_dim;
      TurnHead(call, head, head_dim, call.q_norm, cosines, sines, head);
      if (factor != 1.0f) ScaleHead(head, head_dim, factor);
    }
    if (stored_heads == 0) return;
    const KvSlot slot(kv, call.slots[t]);
    for (int32_t h = 0; h < stored_heads; ++h) {
      const int64_t column = static_cast<int64_t>(h) * head_dim;
      TurnHead(call, call.k + t * call.k_stride + column, head_dim, call.k_norm, cosines, sines, turned);
      StoreKeyHead(kv, turned, slot, h);
      const float* value = call.v + t * call.v_stride + column;
      if (call.v_norm) {
        NormRow(value, head_dim, nullptr, call.eps, turned);
        value = turned;
      }
      StoreValueHead(kv, value, slot, h);
    }
  });
}

}  // namespace
}  // namespace tactus::compute
