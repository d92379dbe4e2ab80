// The operators of a decoder, as the forward pass calls them. Each kernel set (one file in sets/) fills one table of
// them and is selected at run time (select.cc lists the sets; TACTUS_KERNELS forces one). "ref", slow and obvious, is
// the specification; the others are made for instruction sets.
//
// Three families of operators have a folder each: rows/ (weights and tokens as rows, and operators on one row), packed/
// (weights packed in panels) and attention/. In each, ref/ is the specification, code shared by all instruction sets is
// at the top, written over the vectors of simd/simd.h, and code for one instruction set is in a folder of its name.
//
// Linear operators exist twice: over packed weights (pack, linear_packed, gated_packed, embed_packed:
// compute/kernels/packed/packed.h), which support every format, and over rows as in files (linear: weights exactly as
// stored, f32 sums), for the reference pass.
//
// Batch invariance (docs/ARCHITECTURE.md, per binary, kernel set, weight and KV format): every output element has one
// accumulation order, which depends on neither the number of tokens, the tile, nor the threads. K is never split over M
// or threads; attention partitions are fixed in absolute position and merged in ascending order; tests compare bits for
// M = 1..130.
//
// All pointers are to row-major arrays; shapes are [tokens, ...]. No operator allocates; scratch comes from the
// Workspace, which the caller sizes with WorkspaceBytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compute/kernels/packed/packed.h"
#include "compute/kernels/thread_pool.h"
#include "compute/tensor/activation.h"
#include "compute/tensor/matrix_view.h"

namespace tactus::compute {

struct Workspace {
  std::byte* data = nullptr;
  int64_t size = 0;
};

// One sequence's attention work in a step: queries at positions [first_position, first_position + count) of this slot
// attend to positions (AttentionSpec::FirstVisible(p) .. p) through the block table.
struct AttentionItem {
  int32_t first_token = 0;  // row in q and out
  int32_t first_position = 0;
  int32_t count = 0;
  const int32_t* block_table = nullptr;  // block ids, index = position / block_size
  // Items of one group (>= 0) have the same blocks for positions [0, prefix_tokens). Kernels read those once for
  // several of these items where each is one query that attends to all of these positions. The bits do not change. -1:
  // no group.
  int32_t prefix_group = -1;
  int32_t prefix_tokens = 0;
};

// What attention does with scores and weights, the same for every item of a call.
struct AttentionSpec {
  float scale = 1.0f;    // of q k^T; usually 1 / sqrt(head_dim)
  int32_t window = 0;    // positions that a query attends to, its own included; 0: all
  int32_t chunk = 0;     // positions are cut into chunks of this size; a query attends to its chunk; 0: to all
  float softcap = 0.0f;  // > 0: a scaled score s becomes softcap * tanh(s / softcap) (Gemma 2)
  // [heads], null: none. ALiBi (Press et al., "Train Short, Test Long", 2022): slopes[h] * (key - query position) is
  // added to the score.
  const float* slopes = nullptr;
  // [heads], null: none. The score of a key without a value: it takes its share of the softmax (gpt-oss).
  const float* sinks = nullptr;

  bool changes_scores() const { return softcap > 0 || slopes != nullptr; }
  bool sees_all() const { return window == 0 && chunk == 0; }
  // The first position that a query at `position` attends to; never falls as `position` rises.
  int32_t FirstVisible(int32_t position) const {
    if (chunk > 0) return position - position % chunk;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
};

// One layer's paged K and V. dtype: kF32, kBF16, or kInt8 with a scale per position and head. The kernels define the
// layout within a block (attention/kv_layout.h): copy whole blocks of KvBlockBytes, K and V alike.
struct KvLayer {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kBF16;
  int32_t block_size = 16;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};
// Bytes of one block's K; its V has the same size.
int64_t KvBlockBytes(const KvLayer& kv);

struct RopeTable {                  // built once per model (and per dynamic-scaling length)
  const float* inv_freq = nullptr;  // [rotary_dim / 2]
  float attention_scale = 1.0f;     // multiplies cos and sin
  int32_t rotary_dim = 0;
  bool interleaved = false;  // pairs (2i, 2i + 1), as in llama2.c and GGUF's permuted Llama weights; else (i, i + d/2)
};

// A factor of the scores of a query at `position`: 1 + beta * ln(1 + floor((position + offset) / length)) (Ministral 3;
// Llama 4 with an offset of 1).
struct QueryScale {
  float beta = 0.0f;  // 0: the factor is 1 everywhere
  int64_t length = 0;
  int64_t offset = 0;

  float At(int32_t position) const;
};

// The work between the projections and attention. Rows may be columns of wider buffers: strides in elements.
struct RopeStoreCall {
  float* q = nullptr;  // [tokens, heads * head_dim]: normed and rotated in place
  // [tokens, kv_heads * head_dim]: normed and rotated on the way into the cache; null: K and V are in the cache.
  const float* k = nullptr;
  const float* v = nullptr;  // may be k
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  const int32_t* positions = nullptr;  // [tokens]
  const int64_t* slots = nullptr;      // [tokens], as store_kv's
  int64_t tokens = 0;
  int32_t heads = 0;
  RopeTable rope;
  bool qk_norm = false;           // an rms_norm of q and k per head
  const float* q_norm = nullptr;  // [head_dim], its weights; null: all 1
  const float* k_norm = nullptr;
  bool norms_last = false;  // the norms of q and k follow the rotation
  bool v_norm = false;      // an rms_norm of v per head, its weights all 1
  float eps = 0.0f;
  QueryScale query_scale;
};

// One product of packed tokens: y[tokens, w->rows] (rows y_stride apart) = or += x w^T + bias.
struct LinearOutput {
  const PackedMatrix* w = nullptr;
  const float* bias = nullptr;  // [w->rows], null: none
  float* y = nullptr;
  int64_t y_stride = 0;  // elements
  bool add = false;      // y += (the residual stream); else y =
};

// The table of one kernel set. Every function may be called with any number of tokens >= 0 and uses all of `pool`.
struct Ops {
  const char* name;
  // y[tokens, w.rows] = x[tokens, w.cols] * w^T (+ bias[w.rows] unless null) over weights as in the file, each used
  // exactly, in f32: the reference for packed forms. y must not overlap x.
  void (*linear)(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias, float* y,
                 Workspace scratch);
  // out[t, :] = x[t, :] / rms(x[t, :]) * weight; rms = sqrt(mean(x^2) + eps). A null weight: 1. In place allowed.
  void (*rms_norm)(ThreadPool& pool, const float* x, int64_t tokens, int64_t dim, const float* weight, float eps,
                   float* out);
  // out[t, :] = (x[t, :] - mean) / sqrt(variance + eps) * weight + bias (Ba et al., "Layer Normalization", 2016). Null
  // weight: 1, null bias: 0. In place allowed.
  void (*layer_norm)(ThreadPool& pool, const float* x, int64_t tokens, int64_t dim, const float* weight,
                     const float* bias, float eps, float* out);
  // x[t, :] = table[ids[t], :] as f32
  void (*embed)(ThreadPool& pool, const int32_t* ids, int64_t tokens, const MatrixView& table, float* x);
  // Rotates q[tokens, heads * head_dim] and k[tokens, kv_heads * head_dim] in place by positions[t].
  void (*rope)(ThreadPool& pool, float* q, float* k, const int32_t* positions, int64_t tokens, int32_t heads,
               int32_t kv_heads, int32_t head_dim, const RopeTable& rope);
  // Rounds k and v rows to the KV dtype into slot positions: row t is stored in block slots[t] / block_size, offset
  // slots[t] % block_size.
  void (*store_kv)(ThreadPool& pool, const float* k, const float* v, const int64_t* slots, int64_t tokens,
                   const KvLayer& kv);
  // out[tokens, heads * head_dim]. K and V are read as stored. Rows of q and of out are q_stride and out_stride
  // elements apart.
  void (*attention)(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                    int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                    Workspace scratch);
  // out[i] = f(gate[i]) * up[i], or f(gate[i]) where `up` is null; all [n]; in place allowed
  void (*activate)(ThreadPool& pool, Activation f, const float* gate, const float* up, int64_t n, float* out);
  // x += factor * y, both [n], with one rounding
  void (*add)(ThreadPool& pool, float* x, const float* y, float factor, int64_t n);
  // x *= factor, then, where softcap > 0, x = softcap * tanh(x / softcap); [n]
  void (*scale)(ThreadPool& pool, float* x, float factor, float softcap, int64_t n);
  // Dequantises one row to f32 (tests, the reference mode).
  void (*dequantize_row)(const MatrixView& w, int64_t row, float* out);
  // Packed weights (arithmetic: compute/kernels/packed/packed.h). pack: rounds out.tokens rows of x[tokens, out.cols]
  // into `out`, after rms_norm with norm_weight unless that is null.
  void (*pack)(ThreadPool& pool, const float* x, const float* norm_weight, float eps,
               const PackedTokens& out) = nullptr;
  // All outputs together, with one barrier: their matrices have x's columns and token format (TokensFor).
  void (*linear_packed)(ThreadPool& pool, const PackedTokens& x, std::span<const LinearOutput> outputs,
                        Workspace scratch) = nullptr;
  // out = packed silu(x gate^T + gate_bias) * (x up^T + up_bias), tokens of gate.rows columns in `out`'s format.
  // `inner`: scratch of [tokens, gate.rows] f32, used where a row is rounded only once it is complete.
  void (*gated_packed)(ThreadPool& pool, const PackedTokens& x, const PackedMatrix& gate, const float* gate_bias,
                       const PackedMatrix& up, const float* up_bias, float* inner, const PackedTokens& out,
                       Workspace scratch) = nullptr;
  // x[t, :] = row ids[t] of the table as f32
  void (*embed_packed)(ThreadPool& pool, const int32_t* ids, int64_t tokens, const PackedMatrix& table,
                       float* x) = nullptr;
  // rms_norm (where stated), rope and store_kv of a layer in one pass, with the same bits; k and v are not
  // changed.
  void (*rope_store)(ThreadPool& pool, const RopeStoreCall& call, const KvLayer& kv) = nullptr;
};

// The fastest set that this machine can run, or the one forced by `name` (or TACTUS_KERNELS); null: unknown or not
// runnable here.
const Ops* SelectOps(std::string_view name = {});
std::vector<const Ops*> RunnableOps();  // every set that this machine can run, slowest first; the first is "ref"
// Scratch bytes for any operator above with at most `tokens` tokens of this shape.
int64_t WorkspaceBytes(int64_t tokens, int64_t max_cols, int32_t heads, int32_t head_dim, int32_t threads);

}  // namespace tactus::compute
