#include "compute/convert/same_config.h"

#include <algorithm>
#include <cmath>

namespace tactus::compute {
namespace {

// Members that a rotation does not read have their defaults.
RopeConfig Comparable(RopeConfig rope) {
  if (rope.scaling == RopeScaling::kLongRope) rope.factor = 1.0f;
  if (rope.scaling != RopeScaling::kNone) return rope;
  RopeConfig plain;
  plain.rotary_dim = rope.rotary_dim, plain.theta = rope.theta, plain.frequency_factors = rope.frequency_factors;
  plain.interleaved = rope.interleaved;
  return plain;
}

// Factors that programs derive from the same scaling differ in their last bits.
bool SameRope(const RopeConfig& wanted, const RopeConfig& stated) {
  const auto near = [](float a, float b) { return std::abs(a - b) <= 1e-6f * a; };
  const RopeConfig a = Comparable(wanted);
  RopeConfig b = Comparable(stated);
  const std::vector<float>&from = a.frequency_factors, &to = b.frequency_factors;
  if (std::equal(from.begin(), from.end(), to.begin(), to.end(), near)) b.frequency_factors = from;
  return a == b;
}

// A second set of rotary positions that is the first one is none.
ModelConfig Comparable(ModelConfig config) {
  if (!config.local_rope.has_value() || !SameRope(*config.local_rope, config.rope)) return config;
  config.local_rope.reset();
  for (Layer& layer : config.layers) {
    for (LayerBlock& b : layer) {
      auto* attention = std::get_if<AttentionBlock>(&b.block);
      if (attention != nullptr && attention->rope == RopeChoice::kLocal) attention->rope = RopeChoice::kMain;
    }
  }
  return config;
}

std::string DifferenceOf(const AttentionBlock& a, const AttentionBlock& b) {
  if (a.window != b.window) return "the windows of its layers";
  if (a.chunk != b.chunk) return "the chunks of its attention";
  if (a.rope != b.rope) return "which layers have rotary positions";
  if (a.scale != b.scale) return "the scale of its attention scores";
  if (a.softcap != b.softcap) return "the soft cap of its attention scores";
  if (a.qkv_bias != b.qkv_bias || a.o_bias != b.o_bias) return "the biases of its attention";
  if (a.sinks != b.sinks || a.alibi != b.alibi) return "sinks or ALiBi of its attention";
  if (a.qk_norm != b.qk_norm || a.norms_last != b.norms_last || a.v_norm != b.v_norm) return "the norms of q, k and v";
  if (a.query_beta != b.query_beta || a.query_length != b.query_length || a.query_offset != b.query_offset)
    return "how its queries grow with their positions";
  if (a.kv_layer != b.kv_layer || a.k_is_v != b.k_is_v) return "which layers share K and V";
  return "the shape of its attention";
}

std::string DifferenceOf(const ExpertsBlock& a, const ExpertsBlock& b) {
  if (a.experts != b.experts || a.router.chosen != b.router.chosen)
    return "the numbers of experts of each layer and of a token";
  return "its experts, their router or which layers have them";
}

std::string DifferenceOf(const GatedFeedForwardBlock& a, const GatedFeedForwardBlock& b) {
  if (a.cutoff != b.cutoff) return "which values of its gates become 0";
  return "the width, biases or activation of its feed-forward blocks";
}

std::string DifferenceOf(const LowRankBlock& a, const LowRankBlock& b) {
  if (a.rank == b.rank) return "the norms of its low-rank blocks";
  return "the rank " + std::to_string(a.rank) + " of its low-rank blocks, for which readers assume " +
         std::to_string(b.rank) + ",";
}

std::string DifferenceOf(const StreamsBlock&, const StreamsBlock&) {
  return "the streams of its residual";
}

template <class Other>
std::string DifferenceOf(const Other&, const Other&) {
  return "its blocks, norms or multipliers";
}

std::string LayerDifference(const Layer& wanted, const Layer& stated) {
  if (wanted == stated) return {};
  for (size_t i = 0; i < std::min(wanted.size(), stated.size()); ++i) {
    const Block &a = wanted[i].block, &b = stated[i].block;
    if (a == b || a.index() != b.index()) continue;
    return std::visit(
        [&b](const auto& block) { return DifferenceOf(block, std::get<std::decay_t<decltype(block)>>(b)); }, a);
  }
  if ((ExpertsOf(wanted) == nullptr) != (ExpertsOf(stated) == nullptr))
    return "its experts, their router or which layers have them";
  return "its blocks, norms or multipliers";
}

std::vector<TokenId> Sorted(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::string DifferenceOf(const ModelConfig& wanted, const ModelConfig& stated) {
  const ModelConfig a = Comparable(wanted), b = Comparable(stated);
  if (a.hidden_size != b.hidden_size || a.vocab_size != b.vocab_size) return "its hidden size or vocabulary";
  if (a.layers.size() != b.layers.size()) return "the number of its layers";
  for (size_t l = 0; l < a.layers.size(); ++l) {
    std::string difference = LayerDifference(a.layers[l], b.layers[l]);
    if (!difference.empty()) return difference;
  }
  if (a.final_norm != b.final_norm || a.embedding_norm != b.embedding_norm) return "the norms around its layers";
  if (a.max_position != b.max_position) return "its context length";
  if (a.tie_embeddings != b.tie_embeddings || a.lm_head_bias != b.lm_head_bias) return "its output matrix";
  if (!SameRope(a.rope, b.rope)) return "its rotary positions (base, scaling or dimensions)";
  if (a.local_rope.has_value() != b.local_rope.has_value() ||
      (a.local_rope.has_value() && !SameRope(*a.local_rope, *b.local_rope))) {
    return "the rotary positions of its layers with a window";
  }
  if (a.streams != b.streams) return "the streams of its residual";
  if (a.layer_inputs != b.layer_inputs) return "its inputs of each layer";
  if (a.embedding_scale != b.embedding_scale) return "the scale of its embedding";
  if (a.logits_scale != b.logits_scale || a.logits_softcap != b.logits_softcap)
    return "scale or soft cap of its logits";
  if (a.learned_positions != b.learned_positions || a.first_position != b.first_position)
    return "its learned positions";
  if (Sorted(a.stop_ids) != Sorted(b.stop_ids)) return "the tokens that end its answers";
  return {};
}

}  // namespace tactus::compute
