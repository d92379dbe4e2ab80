// The serving forward pass, over packed weights. Per layer: one pass that norms and rounds, one product for q, k and v,
// RoPE and store, attention, the output product onto the residual stream, and the same for the gated feed-forward.
// Beside the operators its only cost is barriers between threads: one per operator, and no operator only moves data.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/model/decoder.h"

namespace tactus::compute {
namespace {

constexpr size_t kOutputsMax = 3;  // outputs of one input: q, k and v

int64_t PackedBytes(const PackedTokens& x) {
  return x.rows() * (x.cols * x.format.value_bytes() + x.scale_count() * 4);
}

// A product with 16-bit tokens counts twice.
OperatorCost LinearCost(const PackedTokens& x, std::span<const LinearOutput> outputs) {
  OperatorCost cost;
  const int64_t multiplies = x.tokens * x.format.multiplies(x.cols);
  cost.bytes = PackedBytes(x);
  for (const LinearOutput& out : outputs) {
    cost.bytes += out.w->bytes() + x.tokens * out.w->rows * (out.add ? 8 : 4);
    cost.operations += 2 * multiplies * out.w->rows;
  }
  return cost;
}

// Reads each item's K and V once, but a shared prefix once per group; scores and weighted values for every visible
// position of every head.
OperatorCost AttentionCost(std::span<const AttentionItem> items, int32_t heads, const KvLayer& kv, int32_t window) {
  OperatorCost cost;
  const int64_t position_bytes = 2 * KvBlockBytes(kv) / kv.block_size;
  std::vector<bool> read;  // per group
  for (const AttentionItem& item : items) {
    int64_t seen = 0;
    for (int32_t p = item.first_position; p < item.first_position + item.count; ++p) {
      seen += window > 0 ? std::min(p + 1, window) : p + 1;
    }
    const int64_t end = item.first_position + item.count;
    cost.bytes += std::min<int64_t>(end, window > 0 ? int64_t{window} + item.count - 1 : end) * position_bytes;
    if (item.prefix_group >= 0 && window == 0) {
      const auto group = static_cast<size_t>(item.prefix_group);
      if (read.size() <= group) read.resize(group + 1);
      if (read[group]) cost.bytes -= item.prefix_tokens * position_bytes;
      read[group] = true;
    }
    cost.bytes += int64_t{item.count} * heads * kv.head_dim * 8;
    cost.operations += 4 * seen * heads * kv.head_dim;
  }
  return cost;
}

}  // namespace

// Runs `work`; with a profile, times it and adds the operations and bytes that `cost` returns.
template <class Work, class Cost>
void Decoder::Timed(DecoderOperator op, Work work, Cost cost) {
  if (profile_ == nullptr) return work();
  const TimeNs start = profile_->NowNs();
  work();
  profile_->Add(op, profile_->NowNs() - start, cost());
}

void Decoder::Round(ThreadPool& pool, const float* x, const PackedNorm& norm, const PackedTokens& out) {
  Timed(
      DecoderOperator::kRound, [&] { options_.ops->pack(pool, x, norm.weight, norm.eps, out); },
      [&] { return OperatorCost{out.tokens * out.cols * 4 + PackedBytes(out), 4 * out.tokens * out.cols}; });
}

// outputs = norm(x) * w^T. Files may mix formats within a layer (v finer than q and k): tokens are packed once per
// token format.
void Decoder::PackedLinear(ThreadPool& pool, DecoderOperator op, const float* x, int64_t tokens, int64_t cols,
                           const PackedNorm& norm, std::span<const LinearOutput> outputs, Rounding rounding) {
  LinearOutput group[kOutputsMax];
  bool done[kOutputsMax] = {};
  for (size_t first = 0; first < outputs.size(); ++first) {
    if (done[first]) continue;
    const TokenFormat format = TokensFor(*outputs[first].w, rounding);
    size_t count = 0;
    for (size_t i = first; i < outputs.size(); ++i) {
      if (done[i] || TokensFor(*outputs[i].w, rounding) != format) continue;
      group[count++] = outputs[i];
      done[i] = true;
    }
    const PackedTokens packed = PlaceTokens(packed_x_, format, tokens, cols);
    Round(pool, x, norm, packed);
    Timed(
        op, [&] { options_.ops->linear_packed(pool, packed, {group, count}, workspace_); },
        [&] { return LinearCost(packed, {group, count}); });
  }
}

void Decoder::ForwardPacked(Pass& pass) {
  Timed(
      DecoderOperator::kEmbed,
      [&] { options_.ops->embed_packed(pass.pool, pass.batch.ids, pass.tokens, weights_.packed->embedding, hidden_); },
      [&] { return OperatorCost{pass.tokens * config_.hidden_size * 4, 0}; });
  for (size_t l = 0; l < config_.layers.size(); ++l) {
    for (const LayerBlock& b : config_.layers[l]) {
      std::visit([&](const auto& block) { Packed(pass, l, b.norm, block); }, b.block);
      if (pass.tokens == 0) return;
    }
  }
}

// hidden_ += o(attention(q, k, v of norm(hidden_)))
void Decoder::Packed(Pass& pass, size_t l, const NormSpec& norm_spec, const AttentionBlock& a) {
  const Ops& ops = *options_.ops;
  const PackedWeights& packed = *weights_.packed;
  const LayerWeights& layer = weights_.layers[l];
  const PackedLayerWeights& w = packed.layers[l];
  const KvLayer& kv = pass.kv[l];
  const auto heads = static_cast<int32_t>(a.heads);
  const int64_t dim = config_.hidden_size, q_cols = a.q_width();
  const PackedNorm norm{layer.vector(norm_spec.weight), norm_spec.eps};
  const LinearOutput qkv[] = {{&w[Role::kQ], layer.vector(Role::kQBias), q_, q_cols},
                              {&w[Role::kK], layer.vector(Role::kKBias), k_, a.kv_width()},
                              {&w[Role::kV], layer.vector(Role::kVBias), v_, a.kv_width()}};
  const std::span<const LinearOutput> products(qkv);
  const size_t alike = packed.roundings.kv == packed.roundings.others ? 3 : 1;  // share q's packed tokens
  PackedLinear(pass.pool, DecoderOperator::kQkv, hidden_, pass.tokens, dim, norm, products.first(alike),
               packed.roundings.others);
  if (alike < 3)
    PackedLinear(pass.pool, DecoderOperator::kQkv, hidden_, pass.tokens, dim, norm, products.subspan(alike),
                 packed.roundings.kv);
  RopeStoreCall call;
  call.q = q_;
  call.k = k_;
  call.v = v_;
  call.q_stride = q_cols;
  call.k_stride = call.v_stride = a.kv_width();
  call.positions = pass.batch.positions;
  call.slots = pass.batch.kv_slots;
  call.tokens = pass.tokens;
  call.heads = heads;
  call.rope = rope_.table();
  call.q_norm = layer.vector(Role::kQNorm);
  call.k_norm = layer.vector(Role::kKNorm);
  call.eps = a.norm_eps;
  Timed(
      DecoderOperator::kRopeStore, [&] { ops.rope_store(pass.pool, call, kv); },
      [&] { return OperatorCost{pass.tokens * (q_cols * 8 + 2 * a.kv_width() * 6), 0}; });
  if (l == last_attention_) {
    // K and V of every token are stored; of the rest, only rows with logits are used.
    pass.items = KeepLogitRows(pass.batch, q_cols);
    pass.tokens = static_cast<int64_t>(pass.batch.logit_rows.size());
    if (pass.tokens == 0) return;
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  Timed(
      DecoderOperator::kAttention,
      [&] { ops.attention(pass.pool, q_, q_cols, pass.items, heads, kv, scale, a.window, mixed_, q_cols, workspace_); },
      [&] { return AttentionCost(pass.items, heads, kv, a.window); });
  const LinearOutput out{&w[Role::kO], layer.vector(Role::kOBias), hidden_, dim, true};
  PackedLinear(pass.pool, DecoderOperator::kOut, mixed_, pass.tokens, q_cols, {}, {&out, 1}, packed.roundings.others);
}

// hidden_ += down(silu(gate(norm(hidden_))) * up(norm(hidden_)))
void Decoder::Packed(Pass& pass, size_t l, const NormSpec& norm_spec, const GatedFeedForwardBlock& f) {
  const Ops& ops = *options_.ops;
  const LayerWeights& layer = weights_.layers[l];
  const PackedLayerWeights& w = weights_.packed->layers[l];
  const PackedMatrix &gate = w[Role::kGate], &up = w[Role::kUp], &down = w[Role::kDown];
  const float *gate_bias = layer.vector(Role::kGateBias), *up_bias = layer.vector(Role::kUpBias);
  const PackedNorm norm{layer.vector(norm_spec.weight), norm_spec.eps};
  const Rounding rounding = weights_.packed->roundings.others, of_down = weights_.packed->roundings.down;
  const int64_t tokens = pass.tokens, inner = f.inner;
  const PackedTokens down_x = PlaceTokens(packed_inner_, TokensFor(down, of_down), tokens, inner);
  const TokenFormat format = TokensFor(gate, rounding);
  const LinearOutput both[] = {{&gate, gate_bias, gate_, inner}, {&up, up_bias, up_, inner}};
  if (format == TokensFor(up, rounding)) {
    const PackedTokens x = PlaceTokens(packed_x_, format, tokens, config_.hidden_size);
    Round(pass.pool, hidden_, norm, x);
    Timed(
        DecoderOperator::kGated,
        [&] { ops.gated_packed(pass.pool, x, gate, gate_bias, up, up_bias, gate_, down_x, workspace_); },
        [&] {
          OperatorCost cost = LinearCost(x, both);
          cost.bytes += PackedBytes(down_x) - 2 * tokens * inner * 4;  // the products stay in the caches
          return cost;
        });
  } else {
    PackedLinear(pass.pool, DecoderOperator::kGated, hidden_, tokens, config_.hidden_size, norm, both, rounding);
    ops.silu_mul(pass.pool, gate_, up_, tokens * inner, gate_);
    Round(pass.pool, gate_, {}, down_x);
  }
  const LinearOutput out{&down, layer.vector(Role::kDownBias), hidden_, config_.hidden_size, true};
  Timed(
      DecoderOperator::kDown, [&] { ops.linear_packed(pass.pool, down_x, {&out, 1}, workspace_); },
      [&] { return LinearCost(down_x, {&out, 1}); });
}

float* Decoder::PackedLogits(ThreadPool& pool, int64_t first, int64_t count) {
  const LinearOutput output{&weights_.packed->lm_head, nullptr, logits_, config_.vocab_size};
  PackedLinear(pool, DecoderOperator::kLogits, hidden_ + first * config_.hidden_size, count, config_.hidden_size,
               {weights_.final_norm, config_.final_norm.eps}, {&output, 1}, weights_.packed->roundings.lm_head);
  return logits_;
}

// Moves the rows of q_ and hidden_ that get logits to the front and returns attention's items for them alone.
std::span<const AttentionItem> Decoder::KeepLogitRows(const DecoderBatch& batch, int64_t q_cols) {
  const int64_t dim = config_.hidden_size;
  last_items_.clear();
  int32_t kept = 0;
  const auto rows = static_cast<int32_t>(batch.logit_rows.size());
  for (const AttentionItem& item : batch.items) {
    const int32_t first = kept, end = item.first_token + item.count;
    for (; kept < rows && batch.logit_rows[static_cast<size_t>(kept)] < end; ++kept) {
      const int64_t from = batch.logit_rows[static_cast<size_t>(kept)];  // >= kept
      if (from == kept) continue;
      std::memcpy(hidden_ + kept * dim, hidden_ + from * dim, static_cast<size_t>(dim) * sizeof(float));
      std::memcpy(q_ + kept * q_cols, q_ + from * q_cols, static_cast<size_t>(q_cols) * sizeof(float));
    }
    const int32_t count = kept - first;
    if (count == 0) continue;
    last_items_.push_back(item);
    last_items_.back().first_token = first;
    last_items_.back().first_position = item.first_position + item.count - count;
    last_items_.back().count = count;
  }
  return last_items_;
}

}  // namespace tactus::compute
