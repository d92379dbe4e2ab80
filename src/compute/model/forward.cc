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

void Decoder::Round(ThreadPool& pool, const float* x, const float* norm, const PackedTokens& out) {
  Timed(
      DecoderOperator::kRound, [&] { options_.ops->pack(pool, x, norm, config_.rms_eps, out); },
      [&] { return OperatorCost{out.tokens * out.cols * 4 + PackedBytes(out), 4 * out.tokens * out.cols}; });
}

// outputs = norm(x) * w^T. Files may mix formats within a layer (v finer than q and k): tokens are packed once per
// token format.
void Decoder::PackedLinear(ThreadPool& pool, DecoderOperator op, const float* x, int64_t tokens, int64_t cols,
                           const float* norm, std::span<const LinearOutput> outputs, Rounding rounding) {
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

void Decoder::ForwardPacked(ThreadPool& pool, const DecoderBatch& batch, std::span<const KvLayer> kv) {
  const Ops& ops = *options_.ops;
  const PackedWeights& packed = *weights_.packed;
  const auto heads = static_cast<int32_t>(config_.num_heads);
  const int64_t dim = config_.hidden_size, q_cols = config_.num_heads * config_.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  int64_t tokens = batch.tokens;
  std::span<const AttentionItem> items = batch.items;
  Timed(
      DecoderOperator::kEmbed, [&] { ops.embed_packed(pool, batch.ids, tokens, packed.embedding, hidden_); },
      [&] { return OperatorCost{tokens * dim * 4, 0}; });
  for (size_t l = 0; l < packed.layers.size(); ++l) {
    const LayerWeights& layer = weights_.layers[l];
    const PackedLayerWeights& w = packed.layers[l];
    const LinearOutput qkv[] = {
        {&w.wq, layer.bq, q_, w.wq.rows}, {&w.wk, layer.bk, k_, w.wk.rows}, {&w.wv, layer.bv, v_, w.wv.rows}};
    const std::span<const LinearOutput> products(qkv);
    const size_t alike = packed.roundings.kv == packed.roundings.others ? 3 : 1;  // share q's packed tokens
    PackedLinear(pool, DecoderOperator::kQkv, hidden_, tokens, dim, layer.attn_norm, products.first(alike),
                 packed.roundings.others);
    if (alike < 3)
      PackedLinear(pool, DecoderOperator::kQkv, hidden_, tokens, dim, layer.attn_norm, products.subspan(alike),
                   packed.roundings.kv);
    RopeStoreCall call;
    call.q = q_;
    call.k = k_;
    call.v = v_;
    call.q_stride = w.wq.rows;
    call.k_stride = w.wk.rows;
    call.v_stride = w.wv.rows;
    call.positions = batch.positions;
    call.slots = batch.kv_slots;
    call.tokens = tokens;
    call.heads = heads;
    call.rope = rope_.table();
    call.q_norm = layer.q_norm;
    call.k_norm = layer.k_norm;
    call.eps = config_.rms_eps;
    Timed(
        DecoderOperator::kRopeStore, [&] { ops.rope_store(pool, call, kv[l]); },
        [&] { return OperatorCost{tokens * (q_cols * 8 + (w.wk.rows + w.wv.rows) * 6), 0}; });
    if (l + 1 == packed.layers.size()) {
      // K and V of every token are stored; of the rest, only rows with logits are used.
      items = KeepLogitRows(batch);
      tokens = static_cast<int64_t>(batch.logit_rows.size());
      if (tokens == 0) return;
    }
    const int32_t window = config_.window.empty() ? 0 : config_.window[l];
    Timed(
        DecoderOperator::kAttention,
        [&] { ops.attention(pool, q_, q_cols, items, heads, kv[l], scale, window, mixed_, q_cols, workspace_); },
        [&] { return AttentionCost(items, heads, kv[l], window); });
    const LinearOutput out{&w.wo, layer.bo, hidden_, dim, true};
    PackedLinear(pool, DecoderOperator::kOut, mixed_, tokens, q_cols, nullptr, {&out, 1}, packed.roundings.others);
    PackedFeedForward(pool, tokens, layer, w);
  }
}

// hidden_ += down(silu(gate(norm(hidden_))) * up(norm(hidden_)))
void Decoder::PackedFeedForward(ThreadPool& pool, int64_t tokens, const LayerWeights& layer,
                                const PackedLayerWeights& w) {
  const Ops& ops = *options_.ops;
  const Rounding rounding = weights_.packed->roundings.others, of_down = weights_.packed->roundings.down;
  const int64_t inner = config_.intermediate_size;
  const PackedTokens down_x = PlaceTokens(packed_inner_, TokensFor(w.w_down, of_down), tokens, inner);
  const TokenFormat format = TokensFor(w.w_gate, rounding);
  const LinearOutput both[] = {{&w.w_gate, layer.b_gate, gate_, inner}, {&w.w_up, layer.b_up, up_, inner}};
  if (format == TokensFor(w.w_up, rounding)) {
    const PackedTokens x = PlaceTokens(packed_x_, format, tokens, config_.hidden_size);
    Round(pool, hidden_, layer.ffn_norm, x);
    Timed(
        DecoderOperator::kGated,
        [&] { ops.gated_packed(pool, x, w.w_gate, layer.b_gate, w.w_up, layer.b_up, gate_, down_x, workspace_); },
        [&] {
          OperatorCost cost = LinearCost(x, both);
          cost.bytes += PackedBytes(down_x) - 2 * tokens * inner * 4;  // the products stay in the caches
          return cost;
        });
  } else {
    PackedLinear(pool, DecoderOperator::kGated, hidden_, tokens, config_.hidden_size, layer.ffn_norm, both, rounding);
    ops.silu_mul(pool, gate_, up_, tokens * inner, gate_);
    Round(pool, gate_, nullptr, down_x);
  }
  const LinearOutput out{&w.w_down, layer.b_down, hidden_, config_.hidden_size, true};
  Timed(
      DecoderOperator::kDown, [&] { ops.linear_packed(pool, down_x, {&out, 1}, workspace_); },
      [&] { return LinearCost(down_x, {&out, 1}); });
}

float* Decoder::PackedLogits(ThreadPool& pool, int64_t first, int64_t count) {
  const LinearOutput output{&weights_.packed->lm_head, nullptr, logits_, config_.vocab_size};
  PackedLinear(pool, DecoderOperator::kLogits, hidden_ + first * config_.hidden_size, count, config_.hidden_size,
               weights_.final_norm, {&output, 1}, weights_.packed->roundings.lm_head);
  return logits_;
}

// Moves the rows of q_ and hidden_ that get logits to the front and returns attention's items for them alone.
std::span<const AttentionItem> Decoder::KeepLogitRows(const DecoderBatch& batch) {
  const int64_t dim = config_.hidden_size, q_cols = config_.num_heads * config_.head_dim;
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
