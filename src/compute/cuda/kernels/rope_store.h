// Between the products of q, k, v and attention: norms of heads, rotary positions, and the write of K and V into pages.
#pragma once

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

// One layer's K and V: pages [blocks, kv_heads, block_size, head_dim] of `type`, a page's head one piece. kInt8: scales
// [blocks, kv_heads, block_size] f32.
struct KvPages {
  void* k = nullptr;
  void* v = nullptr;
  float* k_scales = nullptr;
  float* v_scales = nullptr;
  KvType type = KvType::kBF16;
  int64_t blocks = 0;
  int32_t block_size = 16, kv_heads = 0, head_dim = 0;
};

// As RopeStoreCall (compute/kernels/ops.h) with rows of `type`: q is normed and rotated in place; k and v go to the
// pages at slots[t] = block * block_size + offset, slots below 2^32; -1: nowhere. Math in f32. inv_freq null or
// rotary_dim 0: no rotation.
//
// kInt8: each head of q and k is also multiplied with one orthogonal matrix, at the end, so that no dimension of k
// dominates its scale (SpreadHead, compute/kernels/attention/kv_layout.h). This changes no score, and attention does
// nothing about it. q is multiplied where k is null too, since it reads pages of this type.
struct RopeStore {
  void* q = nullptr;        // [tokens, heads * head_dim], q_stride values apart
  const void* k = nullptr;  // [tokens, kv_heads * head_dim]; null: K and V are in the cache
  const void* v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  Real type = Real::kBF16;
  const int32_t* positions = nullptr;  // [tokens]
  const int64_t* slots = nullptr;      // [tokens]
  int64_t tokens = 0;
  int32_t heads = 0;
  const float* inv_freq = nullptr;  // [rotary_dim / 2], on the device
  float attention_scale = 1.0f;     // multiplies cos and sin
  int32_t rotary_dim = 0;
  bool interleaved = false;
  bool qk_norm = false;
  const float* q_norm = nullptr;  // [head_dim]; null: 1
  const float* k_norm = nullptr;
  bool norms_last = false;
  bool v_norm = false;
  float eps = 0.0f;
  float query_beta = 0.0f;  // QueryScale (compute/kernels/ops.h)
  int64_t query_length = 0, query_offset = 0;
};
void RopeAndStore(Stream& s, const RopeStore& call, const KvPages& kv);

// Copies of whole blocks within one layer's K and V (and scales), in the order of the list: pairs [n, 2] of block ids
// (from, to) on the device. No block is a target twice or a target and a later source.
void CopyPages(Stream& s, const int32_t* pairs, int64_t n, const KvPages& kv);

}  // namespace tactus::compute::cuda
