// The forward pass as in a model's definition: one plain operator after the other over weights as rows. The serving
// pass (forward.cc) is compared with it. A model feature is added here for comparison and there for use.
#include <cmath>
#include <cstring>

#include "compute/model/decoder.h"

namespace tactus::compute {

void Decoder::ForwardReference(Pass& pass) {
  const int64_t tokens = pass.tokens, dim = config_.hidden_size;
  Embed(pass);
  if (config_.layer_inputs.size > 0) {
    Linear(pass.pool, hidden_, tokens, weights_.outside[Role::kInputProjection], nullptr, layer_inputs_);
    AddTokenInputs(pass);
  }
  if (config_.streams > 1) SplitStreams(pass);
  ForBlocks(pass, [&](const LayerBlock& b) {
    const LayerWeights& w = weights_.layers[pass.layer];
    if (b.norm.exists()) {
      Norm(pass.pool, b.norm, w, pass.in, tokens, normed_);
    } else {
      std::memcpy(normed_, pass.in, static_cast<size_t>(tokens * dim) * sizeof(float));
    }
    std::visit([&](const auto& block) { Reference(pass, block); }, b.block);
    AddBranch(pass, b);
    ScaleStream(pass, b);
  });
  if (config_.streams > 1) MergeStreams(pass);
  const std::span<const int32_t> rows = pass.batch.logit_rows;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::memcpy(input_ + static_cast<int64_t>(r) * dim, hidden_ + rows[r] * dim, static_cast<size_t>(dim) * 4);
  }
  Norm(pass.pool, config_.final_norm, weights_.outside, input_, static_cast<int64_t>(rows.size()), input_);
}

float* Decoder::ReferenceLogits(ThreadPool& pool, int64_t first, int64_t count) {
  Linear(pool, input_ + first * config_.hidden_size, count, weights_.lm_head,
         weights_.outside.vector(Role::kLmHeadBias), logits_);
  return logits_;
}

// branch_ = attention block of normed_. All writes of K and V come before all reads, so that an item may attend to
// blocks which another item of the same step fills.
void Decoder::Reference(const Pass& pass, const AttentionBlock& a) {
  const Ops& ops = *options_.ops;
  ThreadPool& pool = pass.pool;
  const LayerWeights& w = weights_.layers[pass.layer];
  const KvLayer& kv = pass.kv[a.stores_kv() ? pass.layer : static_cast<size_t>(a.kv_layer)];
  const int64_t tokens = pass.tokens;
  const auto heads = static_cast<int32_t>(a.heads), head_dim = static_cast<int32_t>(a.head_dim),
             kv_heads = a.stores_kv() ? static_cast<int32_t>(a.kv_heads) : 0;
  Linear(pool, normed_, tokens, w[Role::kQ], w.vector(Role::kQBias), q_);
  if (a.stores_kv()) Linear(pool, normed_, tokens, w[Role::kK], w.vector(Role::kKBias), k_);
  if (a.stores_kv() && a.k_is_v) {
    std::memcpy(v_, k_, static_cast<size_t>(tokens * a.kv_width()) * sizeof(float));
  } else if (a.stores_kv()) {
    Linear(pool, normed_, tokens, w[Role::kV], w.vector(Role::kVBias), v_);
  }
  const auto norm_heads = [&] {
    ops.rms_norm(pool, q_, tokens * heads, head_dim, w.vector(Role::kQNorm), a.norm_eps, q_);
    ops.rms_norm(pool, k_, tokens * kv_heads, head_dim, w.vector(Role::kKNorm), a.norm_eps, k_);
  };
  if (a.norms_heads() && !a.norms_last) norm_heads();
  if (a.qk_norm == QkNorm::kWidth) NormQk(pass, a);
  if (a.v_norm) ops.rms_norm(pool, v_, tokens * kv_heads, head_dim, nullptr, a.norm_eps, v_);
  ops.rope(pool, q_, k_, pass.positions, tokens, heads, kv_heads, head_dim, RopeOf(a));
  if (a.norms_heads() && a.norms_last) norm_heads();
  for (int64_t t = 0; t < tokens && a.query_beta != 0.0f; ++t) {
    const float factor = QueryScale{a.query_beta, a.query_length, a.query_offset}.At(pass.positions[t]);
    ops.scale(pool, q_ + t * a.q_width(), factor, 0.0f, a.q_width());
  }
  if (a.stores_kv()) ops.store_kv(pool, k_, v_, pass.batch.kv_slots, tokens, kv);
  ops.attention(pool, q_, a.q_width(), pass.items, heads, kv, SpecOf(a, pass.layer), mixed_, a.q_width(), workspace_);
  Linear(pool, mixed_, tokens, w[Role::kO], w.vector(Role::kOBias), branch_);
}

// branch_ = down(f(gate(normed_)) * up(normed_))
void Decoder::Reference(const Pass& pass, const GatedFeedForwardBlock& f) {
  const LayerWeights& w = weights_.layers[pass.layer];
  Linear(pass.pool, normed_, pass.tokens, w[Role::kGate], w.vector(Role::kGateBias), gate_);
  Linear(pass.pool, normed_, pass.tokens, w[Role::kUp], w.vector(Role::kUpBias), up_);
  CutGate(pass, f);
  options_.ops->activate(pass.pool, f.activation, gate_, up_, pass.tokens * f.inner, gate_);
  Linear(pass.pool, gate_, pass.tokens, w[Role::kDown], w.vector(Role::kDownBias), branch_);
}

// branch_ = down(f(up(normed_)))
void Decoder::Reference(const Pass& pass, const FeedForwardBlock& f) {
  const LayerWeights& w = weights_.layers[pass.layer];
  Linear(pass.pool, normed_, pass.tokens, w[Role::kUp], w.vector(Role::kUpBias), gate_);
  options_.ops->activate(pass.pool, f.activation, gate_, nullptr, pass.tokens * f.inner, gate_);
  Linear(pass.pool, gate_, pass.tokens, w[Role::kDown], w.vector(Role::kDownBias), branch_);
}

// branch_ = down(f(gate(normed_)) * the layer's input)
void Decoder::Reference(const Pass& pass, const LayerInputBlock& f) {
  const LayerWeights& w = weights_.layers[pass.layer];
  Linear(pass.pool, normed_, pass.tokens, w[Role::kInputGate], nullptr, gate_);
  GatherLayerInputs(pass, f.inner);
  options_.ops->activate(pass.pool, f.activation, gate_, up_, pass.tokens * f.inner, gate_);
  Linear(pass.pool, gate_, pass.tokens, w[Role::kInputDown], nullptr, branch_);
}

void Decoder::Linear(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                     float* y) {
  if (options_.before_linear) options_.before_linear(w, x, tokens);
  options_.ops->linear(pool, x, tokens, w, bias, y, workspace_);
}

}  // namespace tactus::compute
