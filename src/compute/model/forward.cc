// The serving forward pass, over packed weights. Per layer: one pass that norms and rounds, one product for q, k and v,
// RoPE and store, attention, the output product onto the residual stream, and the same for the gated feed-forward.
// Beside the operators its only cost is barriers between threads: one per operator. Data are only moved where blocks
// are parallel or wait for each other's branch, where there are several streams, and where rows without logits are
// left.
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
    cost.memory_bytes += out.w->bytes();
    cost.bytes += x.tokens * out.w->rows * (out.add ? 8 : 4);
    cost.AddProducts(x.format.values, 2 * multiplies * out.w->rows);
  }
  cost.bytes += cost.memory_bytes;
  return cost;
}

// Reads each item's K and V once, but a shared prefix once per group; scores and weighted values for every visible
// position of every head.
OperatorCost AttentionCost(std::span<const AttentionItem> items, int32_t heads, const KvLayer& kv,
                           const AttentionSpec& spec) {
  OperatorCost cost;
  const int64_t position_bytes = 2 * KvBlockBytes(kv) / kv.block_size;
  std::vector<bool> read;  // per group
  for (const AttentionItem& item : items) {
    int64_t seen = 0;
    for (int32_t p = item.first_position; p < item.first_position + item.count; ++p) {
      seen += p + 1 - spec.FirstVisible(p);
    }
    const int64_t end = item.first_position + item.count;
    cost.memory_bytes += (end - spec.FirstVisible(item.first_position)) * position_bytes;
    if (item.prefix_group >= 0 && spec.sees_all()) {
      const auto group = static_cast<size_t>(item.prefix_group);
      if (read.size() <= group) read.resize(group + 1);
      if (read[group]) cost.memory_bytes -= item.prefix_tokens * position_bytes;
      read[group] = true;
    }
    cost.bytes += int64_t{item.count} * heads * kv.head_dim * 8;
    cost.AddProducts(kv.dtype == DType::kF32 ? TokenValues::kF32 : TokenValues::kBF16, 4 * seen * heads * kv.head_dim);
  }
  cost.bytes += cost.memory_bytes;
  return cost;
}

}  // namespace

void Decoder::Round(ThreadPool& pool, const PackedInput& in, const PackedTokens& out) {
  Timed(
      DecoderOperator::kRound, [&] { options_.ops->pack(pool, in.x, in.norm_weight, in.eps, out); },
      [&] { return OperatorCost{out.tokens * out.cols * 4 + PackedBytes(out), 4 * out.tokens * out.cols}; });
}

PackedInput Decoder::InputOf(ThreadPool& pool, const NormSpec& norm, const LayerWeights& weights, const float* x,
                             int64_t tokens) {
  if (!norm.exists()) return {x};
  const float* const weight = weights.vector(norm.weight);
  if (norm.kind == NormKind::kRms && weight != nullptr) return {x, weight, norm.eps};
  Norm(pool, norm, weights, x, tokens, normed_);
  return {normed_};
}

// outputs = norm(x) * w^T. Files may mix formats within a layer (v finer than q and k): tokens are packed once per
// token format.
void Decoder::PackedLinear(ThreadPool& pool, DecoderOperator op, const PackedInput& in, int64_t tokens, int64_t cols,
                           std::span<const LinearOutput> outputs, Rounding rounding) {
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
    Round(pool, in, packed);
    Timed(
        op, [&] { options_.ops->linear_packed(pool, packed, {group, count}, workspace_); },
        [&] { return LinearCost(packed, {group, count}); });
  }
}

void Decoder::ForwardPacked(Pass& pass) {
  Timed(
      DecoderOperator::kEmbed, [&] { Embed(pass); },
      [&] { return OperatorCost{pass.tokens * config_.hidden_size * 4, 0}; });
  if (config_.layer_inputs.size > 0) {
    const int64_t width = config_.layer_inputs_width();
    const LinearOutput projection{&weights_.packed->outside[Role::kInputProjection], nullptr, layer_inputs_, width};
    PackedLinear(pass.pool, DecoderOperator::kGated, {hidden_}, pass.tokens, config_.hidden_size, {&projection, 1},
                 weights_.packed->roundings.others);
    AddTokenInputs(pass);
  }
  if (config_.streams > 1) SplitStreams(pass);
  ForBlocks(pass, [&](const LayerBlock& b) {
    const bool directly = b.adds_directly() && !pass.waits;
    const BlockOutput out = directly ? BlockOutput{hidden_, true} : BlockOutput{branch_, false};
    std::visit([&](const auto& block) { Packed(pass, b.norm, out, block); }, b.block);
    if (pass.tokens == 0) return;
    if (!out.adds) AddBranch(pass, b);
    ScaleStream(pass, b);
  });
  if (config_.streams > 1 && pass.tokens > 0) MergeStreams(pass);
}

// q_, k_ and v_ = the products of `in`
void Decoder::PackedQkv(Pass& pass, const PackedInput& in, const AttentionBlock& a) {
  const PackedWeights& packed = *weights_.packed;
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = packed.layers[pass.layer];
  const LinearOutput qkv[] = {{&w[Role::kQ], layer.vector(Role::kQBias), q_, a.q_width()},
                              {&w[Role::kK], layer.vector(Role::kKBias), k_, a.kv_width()},
                              {&w[Role::kV], layer.vector(Role::kVBias), v_, a.kv_width()}};
  const std::span<const LinearOutput> products(qkv, !a.stores_kv() ? 1 : a.k_is_v ? 2 : 3);
  const size_t alike = packed.roundings.kv == packed.roundings.others ? products.size() : 1;  // share q's packed tokens
  const int64_t dim = config_.hidden_size;
  PackedLinear(pass.pool, DecoderOperator::kQkv, in, pass.tokens, dim, products.first(alike), packed.roundings.others);
  if (alike == products.size()) return;
  PackedLinear(pass.pool, DecoderOperator::kQkv, in, pass.tokens, dim, products.subspan(alike), packed.roundings.kv);
}

// out = o(attention(q, k, v of norm(in)))
void Decoder::Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const AttentionBlock& a) {
  const Ops& ops = *options_.ops;
  const PackedWeights& packed = *weights_.packed;
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = packed.layers[pass.layer];
  const KvLayer& kv = pass.kv[a.stores_kv() ? pass.layer : static_cast<size_t>(a.kv_layer)];
  const auto heads = static_cast<int32_t>(a.heads);
  const int64_t dim = config_.hidden_size, q_cols = a.q_width();
  PackedQkv(pass, InputOf(pass.pool, norm, layer, pass.in, pass.tokens), a);
  if (a.qk_norm == QkNorm::kWidth) NormQk(pass, a);
  RopeStoreCall call;
  call.q = q_;
  call.k = a.stores_kv() ? k_ : nullptr;
  call.v = a.k_is_v ? k_ : v_;
  call.q_stride = q_cols;
  call.k_stride = call.v_stride = a.kv_width();
  call.positions = pass.positions;
  call.slots = pass.batch.kv_slots;
  call.tokens = pass.tokens;
  call.heads = heads;
  call.rope = RopeOf(a);
  call.qk_norm = a.norms_heads();
  if (call.qk_norm) {
    call.q_norm = layer.vector(Role::kQNorm);
    call.k_norm = layer.vector(Role::kKNorm);
  }
  call.norms_last = a.norms_last;
  call.v_norm = a.v_norm;
  call.eps = a.norm_eps;
  call.query_scale = {a.query_beta, a.query_length, a.query_offset};
  Timed(
      DecoderOperator::kRopeStore, [&] { ops.rope_store(pass.pool, call, kv); },
      [&] { return OperatorCost{pass.tokens * (q_cols * 8 + 2 * a.kv_width() * 6), 0}; });
  if (pass.layer == last_stored_) {
    // K and V of every token are stored; of the rest, only rows with logits are used.
    KeepLogitRows(pass, q_cols);
    if (pass.tokens == 0) return;
  }
  const AttentionSpec spec = SpecOf(a, pass.layer);
  Timed(
      DecoderOperator::kAttention,
      [&] { ops.attention(pass.pool, q_, q_cols, pass.items, heads, kv, spec, mixed_, q_cols, workspace_); },
      [&] { return AttentionCost(pass.items, heads, kv, spec); });
  const LinearOutput o{&w[Role::kO], layer.vector(Role::kOBias), out.y, dim, out.adds};
  PackedLinear(pass.pool, DecoderOperator::kOut, {mixed_}, pass.tokens, q_cols, {&o, 1}, packed.roundings.others);
}

// out = down(f(gate(norm(in))) * up(norm(in)))
void Decoder::Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const GatedFeedForwardBlock& f) {
  const Ops& ops = *options_.ops;
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = weights_.packed->layers[pass.layer];
  const PackedMatrix &gate = w[Role::kGate], &up = w[Role::kUp], &down = w[Role::kDown];
  const float *gate_bias = layer.vector(Role::kGateBias), *up_bias = layer.vector(Role::kUpBias);
  const Rounding rounding = weights_.packed->roundings.others;
  const int64_t tokens = pass.tokens, inner = f.inner;
  const PackedInput in = InputOf(pass.pool, norm, layer, pass.in, tokens);
  const PackedTokens down_x =
      PlaceTokens(packed_inner_, TokensFor(down, weights_.packed->roundings.down), tokens, inner);
  const TokenFormat format = TokensFor(gate, rounding);
  const LinearOutput both[] = {{&gate, gate_bias, gate_, inner}, {&up, up_bias, up_, inner}};
  if (f.activation == Activation::kSilu && !f.cuts() && format == TokensFor(up, rounding)) {
    const PackedTokens x = PlaceTokens(packed_x_, format, tokens, config_.hidden_size);
    Round(pass.pool, in, x);
    Timed(
        DecoderOperator::kGated,
        [&] { ops.gated_packed(pass.pool, x, gate, gate_bias, up, up_bias, gate_, down_x, workspace_); },
        [&] {
          OperatorCost cost = LinearCost(x, both);
          cost.bytes += PackedBytes(down_x) - 2 * tokens * inner * 4;  // the products stay in the caches
          return cost;
        });
  } else {
    PackedLinear(pass.pool, DecoderOperator::kGated, in, tokens, config_.hidden_size, both, rounding);
    CutGate(pass, f);
    ops.activate(pass.pool, f.activation, gate_, up_, tokens * inner, gate_);
    Round(pass.pool, {gate_}, down_x);
  }
  PackedDown(pass, Role::kDown, down_x, out);
}

// out = down(f(up(norm(in))))
void Decoder::Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const FeedForwardBlock& f) {
  const LayerWeights& layer = weights_.layers[pass.layer];
  const PackedLayerWeights& w = weights_.packed->layers[pass.layer];
  const int64_t tokens = pass.tokens, inner = f.inner;
  const PackedInput in = InputOf(pass.pool, norm, layer, pass.in, tokens);
  const LinearOutput up{&w[Role::kUp], layer.vector(Role::kUpBias), gate_, inner};
  PackedLinear(pass.pool, DecoderOperator::kGated, in, tokens, config_.hidden_size, {&up, 1},
               weights_.packed->roundings.others);
  options_.ops->activate(pass.pool, f.activation, gate_, nullptr, tokens * inner, gate_);
  PackedDown(pass, Role::kDown, inner, out);
}

// out = down(f(gate(norm(in))) * the layer's input)
void Decoder::Packed(Pass& pass, const NormSpec& norm, const BlockOutput& out, const LayerInputBlock& f) {
  const PackedInput in = InputOf(pass.pool, norm, weights_.layers[pass.layer], pass.in, pass.tokens);
  const LinearOutput gate{&weights_.packed->layers[pass.layer][Role::kInputGate], nullptr, gate_, f.inner};
  PackedLinear(pass.pool, DecoderOperator::kGated, in, pass.tokens, config_.hidden_size, {&gate, 1},
               weights_.packed->roundings.others);
  GatherLayerInputs(pass, f.inner);
  options_.ops->activate(pass.pool, f.activation, gate_, up_, pass.tokens * f.inner, gate_);
  PackedDown(pass, Role::kInputDown, f.inner, out);
}

void Decoder::PackedDown(const Pass& pass, Role role, int64_t inner, const BlockOutput& out) {
  const TokenFormat format = TokensFor(weights_.packed->layers[pass.layer][role], weights_.packed->roundings.down);
  const PackedTokens x = PlaceTokens(packed_inner_, format, pass.tokens, inner);
  Round(pass.pool, {gate_}, x);
  PackedDown(pass, role, x, out);
}

void Decoder::PackedDown(const Pass& pass, Role role, const PackedTokens& x, const BlockOutput& out) {
  const float* const bias = role == Role::kDown ? weights_.layers[pass.layer].vector(Role::kDownBias) : nullptr;
  const LinearOutput down{&weights_.packed->layers[pass.layer][role], bias, out.y, config_.hidden_size, out.adds};
  Timed(
      DecoderOperator::kDown, [&] { options_.ops->linear_packed(pass.pool, x, {&down, 1}, workspace_); },
      [&] { return LinearCost(x, {&down, 1}); });
}

float* Decoder::PackedLogits(ThreadPool& pool, int64_t first, int64_t count) {
  const LinearOutput output{&weights_.packed->lm_head, weights_.outside.vector(Role::kLmHeadBias), logits_,
                            config_.vocab_size};
  const PackedInput in =
      InputOf(pool, config_.final_norm, weights_.outside, hidden_ + first * config_.hidden_size, count);
  PackedLinear(pool, DecoderOperator::kLogits, in, count, config_.hidden_size, {&output, 1},
               weights_.packed->roundings.lm_head);
  return logits_;
}

// Moves the rows that get logits to the front of q_, of the streams and of the layers' inputs, and keeps positions and
// attention's items for them alone.
void Decoder::KeepLogitRows(Pass& pass, int64_t q_cols) {
  const int64_t dim = config_.hidden_size;
  last_items_.clear();
  last_positions_.clear();
  int32_t kept = 0;
  const std::span<const int32_t> logit_rows = pass.batch.logit_rows;
  const auto rows = static_cast<int32_t>(logit_rows.size());
  const auto move = [](float* buffer, int64_t to, int64_t from, int64_t width) {
    std::memcpy(buffer + to * width, buffer + from * width, static_cast<size_t>(width) * sizeof(float));
  };
  for (const AttentionItem& item : pass.batch.items) {
    const int32_t first = kept, end = item.first_token + item.count;
    for (; kept < rows && logit_rows[static_cast<size_t>(kept)] < end; ++kept) {
      const int64_t from = logit_rows[static_cast<size_t>(kept)];  // >= kept
      last_positions_.push_back(pass.positions[from]);
      if (from == kept) continue;
      move(hidden_, kept, from, dim);
      move(q_, kept, from, q_cols);
      if (pass.keeps_input) move(input_, kept, from, dim);
      move(layer_inputs_, kept, from, config_.layer_inputs_width());
      if (config_.streams > 1) move(streams_, kept, from, config_.streams * dim);
    }
    const int32_t count = kept - first;
    if (count == 0) continue;
    last_items_.push_back(item);
    last_items_.back().first_token = first;
    last_items_.back().first_position = item.first_position + item.count - count;
    last_items_.back().count = count;
  }
  pass.items = last_items_;
  pass.positions = last_positions_.data();
  pass.tokens = rows;
}

}  // namespace tactus::compute
