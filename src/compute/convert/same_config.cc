#include "compute/convert/same_config.h"

#include <algorithm>

namespace tactus::compute {
namespace {

// Members that a rotation does not read have their defaults.
RopeConfig Comparable(RopeConfig rope) {
  rope.interleaved = false;
  if (rope.scaling == RopeScaling::kLongRope) rope.factor = 1.0f;
  if (rope.scaling != RopeScaling::kNone) return rope;
  RopeConfig plain;
  plain.rotary_dim = rope.rotary_dim, plain.theta = rope.theta, plain.frequency_factors = rope.frequency_factors;
  return plain;
}

// A second set of rotary positions that is the first one is none.
ModelConfig Comparable(ModelConfig config) {
  if (!config.local_rope.has_value() || Comparable(*config.local_rope) != Comparable(config.rope)) return config;
  config.local_rope.reset();
  for (Layer& layer : config.layers) {
    for (LayerBlock& b : layer) {
      auto* attention = std::get_if<AttentionBlock>(&b.block);
      if (attention != nullptr && attention->rope == RopeChoice::kLocal) attention->rope = RopeChoice::kMain;
    }
  }
  return config;
}

std::string LayerDifference(const Layer& wanted, const Layer& stated) {
  if (wanted == stated) return {};
  const AttentionBlock *a = AttentionOf(wanted), *b = AttentionOf(stated);
  if (a != nullptr && b != nullptr && *a != *b) {
    if (a->window != b->window) return "the windows of its layers";
    if (a->rope != b->rope) return "which layers have rotary positions";
    if (a->scale != b->scale) return "the scale of its attention scores";
    if (a->softcap != b->softcap) return "the soft cap of its attention scores";
    if (a->qkv_bias != b->qkv_bias || a->o_bias != b->o_bias) return "the biases of its attention";
    if (a->sinks != b->sinks || a->alibi != b->alibi) return "sinks or ALiBi of its attention";
    return "the shape of its attention";
  }
  if (ExpertsOf(wanted) != nullptr || ExpertsOf(stated) != nullptr)
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
  if (Comparable(a.rope) != Comparable(b.rope)) return "its rotary positions (base, scaling or dimensions)";
  if (a.local_rope.has_value() != b.local_rope.has_value() ||
      (a.local_rope.has_value() && Comparable(*a.local_rope) != Comparable(*b.local_rope))) {
    return "the rotary positions of its layers with a window";
  }
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
