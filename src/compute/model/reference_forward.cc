// The forward pass as in a model's definition: one plain operator after the other over weights as rows. The serving
// pass (forward.cc) is compared with it. A model feature is added here for comparison and there for use.
#include <cmath>
#include <cstring>

#include "compute/model/decoder.h"

namespace tactus::compute {

void Decoder::ForwardReference(ThreadPool& pool, const DecoderBatch& batch, std::span<const KvLayer> kv) {
  const Ops& ops = *options_.ops;
  const int64_t tokens = batch.tokens, dim = config_.hidden_size;
  ops.embed(pool, batch.ids, tokens, weights_.embedding, hidden_);
  for (size_t l = 0; l < weights_.layers.size(); ++l) {
    const LayerWeights& layer = weights_.layers[l];
    ops.rms_norm(pool, hidden_, tokens, dim, layer.attn_norm, config_.rms_eps, normed_);
    Attention(pool, batch, layer, kv[l], config_.window.empty() ? 0 : config_.window[l]);
    ops.add(pool, hidden_, branch_, tokens * dim);
    ops.rms_norm(pool, hidden_, tokens, dim, layer.ffn_norm, config_.rms_eps, normed_);
    FeedForward(pool, tokens, layer);
    ops.add(pool, hidden_, branch_, tokens * dim);
  }
  const auto rows = static_cast<int64_t>(batch.logit_rows.size());
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(final_ + r * dim, hidden_ + batch.logit_rows[static_cast<size_t>(r)] * dim,
                static_cast<size_t>(dim) * 4);
  }
  ops.rms_norm(pool, final_, rows, dim, weights_.final_norm, config_.rms_eps, final_);
}

float* Decoder::ReferenceLogits(ThreadPool& pool, int64_t first, int64_t count) {
  Linear(pool, final_ + first * config_.hidden_size, count, weights_.lm_head, nullptr, logits_);
  return logits_;
}

// branch_ = attention block of normed_. All writes of K and V come before all reads, so that an item may attend to
// blocks which another item of the same step fills.
void Decoder::Attention(ThreadPool& pool, const DecoderBatch& batch, const LayerWeights& layer, const KvLayer& kv,
                        int32_t window) {
  const Ops& ops = *options_.ops;
  const int64_t tokens = batch.tokens;
  const auto heads = static_cast<int32_t>(config_.num_heads);
  const auto kv_heads = static_cast<int32_t>(config_.num_kv_heads);
  const auto head_dim = static_cast<int32_t>(config_.head_dim);
  Linear(pool, normed_, tokens, layer.wq, layer.bq, q_);
  Linear(pool, normed_, tokens, layer.wk, layer.bk, k_);
  Linear(pool, normed_, tokens, layer.wv, layer.bv, v_);
  if (layer.q_norm != nullptr) ops.rms_norm(pool, q_, tokens * heads, head_dim, layer.q_norm, config_.rms_eps, q_);
  if (layer.k_norm != nullptr) ops.rms_norm(pool, k_, tokens * kv_heads, head_dim, layer.k_norm, config_.rms_eps, k_);
  ops.rope(pool, q_, k_, batch.positions, tokens, heads, kv_heads, head_dim, rope_.table());
  ops.store_kv(pool, k_, v_, batch.kv_slots, tokens, kv);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const int64_t row = config_.num_heads * config_.head_dim;
  ops.attention(pool, q_, row, batch.items, heads, kv, scale, window, mixed_, row, workspace_);
  Linear(pool, mixed_, tokens, layer.wo, layer.bo, branch_);
}

// branch_ = down(silu(gate(normed_)) * up(normed_))
void Decoder::FeedForward(ThreadPool& pool, int64_t tokens, const LayerWeights& layer) {
  Linear(pool, normed_, tokens, layer.w_gate, layer.b_gate, gate_);
  Linear(pool, normed_, tokens, layer.w_up, layer.b_up, up_);
  options_.ops->silu_mul(pool, gate_, up_, tokens * config_.intermediate_size, gate_);
  Linear(pool, gate_, tokens, layer.w_down, layer.b_down, branch_);
}

void Decoder::Linear(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                     float* y) {
  if (options_.before_linear) options_.before_linear(w, x);
  options_.ops->linear(pool, x, tokens, w, bias, y, workspace_);
}

}  // namespace tactus::compute
