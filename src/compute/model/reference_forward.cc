// The forward pass as in a model's definition: one plain operator after the other over weights as rows. The serving
// pass (forward.cc) is compared with it. A model feature is added here for comparison and there for use.
#include <cmath>
#include <cstring>

#include "compute/model/decoder.h"

namespace tactus::compute {

void Decoder::ForwardReference(const Pass& pass) {
  const Ops& ops = *options_.ops;
  const int64_t tokens = pass.tokens, dim = config_.hidden_size;
  ops.embed(pass.pool, pass.batch.ids, tokens, weights_.embedding, hidden_);
  for (size_t l = 0; l < config_.layers.size(); ++l) {
    for (const LayerBlock& b : config_.layers[l]) {
      const float* weight = weights_.layers[l].vector(b.norm.weight);
      ops.rms_norm(pass.pool, hidden_, tokens, dim, weight, b.norm.eps, normed_);
      std::visit([&](const auto& block) { Reference(pass, l, block); }, b.block);
      ops.add(pass.pool, hidden_, branch_, tokens * dim);
    }
  }
  const std::span<const int32_t> rows = pass.batch.logit_rows;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::memcpy(final_ + static_cast<int64_t>(r) * dim, hidden_ + rows[r] * dim, static_cast<size_t>(dim) * 4);
  }
  ops.rms_norm(pass.pool, final_, static_cast<int64_t>(rows.size()), dim, weights_.final_norm, config_.final_norm.eps,
               final_);
}

float* Decoder::ReferenceLogits(ThreadPool& pool, int64_t first, int64_t count) {
  Linear(pool, final_ + first * config_.hidden_size, count, weights_.lm_head, nullptr, logits_);
  return logits_;
}

// branch_ = attention block of normed_. All writes of K and V come before all reads, so that an item may attend to
// blocks which another item of the same step fills.
void Decoder::Reference(const Pass& pass, size_t l, const AttentionBlock& a) {
  const Ops& ops = *options_.ops;
  ThreadPool& pool = pass.pool;
  const LayerWeights& w = weights_.layers[l];
  const int64_t tokens = pass.tokens;
  const auto heads = static_cast<int32_t>(a.heads), kv_heads = static_cast<int32_t>(a.kv_heads),
             head_dim = static_cast<int32_t>(a.head_dim);
  Linear(pool, normed_, tokens, w[Role::kQ], w.vector(Role::kQBias), q_);
  Linear(pool, normed_, tokens, w[Role::kK], w.vector(Role::kKBias), k_);
  Linear(pool, normed_, tokens, w[Role::kV], w.vector(Role::kVBias), v_);
  if (a.qk_norm) {
    ops.rms_norm(pool, q_, tokens * heads, head_dim, w.vector(Role::kQNorm), a.norm_eps, q_);
    ops.rms_norm(pool, k_, tokens * kv_heads, head_dim, w.vector(Role::kKNorm), a.norm_eps, k_);
  }
  ops.rope(pool, q_, k_, pass.batch.positions, tokens, heads, kv_heads, head_dim, rope_.table());
  ops.store_kv(pool, k_, v_, pass.batch.kv_slots, tokens, pass.kv[l]);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  ops.attention(pool, q_, a.q_width(), pass.items, heads, pass.kv[l], scale, a.window, mixed_, a.q_width(), workspace_);
  Linear(pool, mixed_, tokens, w[Role::kO], w.vector(Role::kOBias), branch_);
}

// branch_ = down(silu(gate(normed_)) * up(normed_))
void Decoder::Reference(const Pass& pass, size_t l, const GatedFeedForwardBlock& f) {
  const LayerWeights& w = weights_.layers[l];
  Linear(pass.pool, normed_, pass.tokens, w[Role::kGate], w.vector(Role::kGateBias), gate_);
  Linear(pass.pool, normed_, pass.tokens, w[Role::kUp], w.vector(Role::kUpBias), up_);
  options_.ops->silu_mul(pass.pool, gate_, up_, pass.tokens * f.inner, gate_);
  Linear(pass.pool, gate_, pass.tokens, w[Role::kDown], w.vector(Role::kDownBias), branch_);
}

void Decoder::Linear(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                     float* y) {
  if (options_.before_linear) options_.before_linear(w, x);
  options_.ops->linear(pool, x, tokens, w, bias, y, workspace_);
}

}  // namespace tactus::compute
