// Where files have the tensors of a model: names by role, in the two spellings of most families.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "compute/config/blocks.h"

namespace tactus::compute {

// Where a file has a tensor.
struct TensorSource {
  enum Form : uint8_t {
    kWhole,
    kFused,         // rows of a larger tensor, whose parts follow one another
    kFusedInHeads,  // rows of each of its KV heads' groups (GPT-NeoX, BLOOM, Falcon)
    kTransposed,    // [cols, rows] (GPT-2)
    kFusedTransposed,
    kFusedInHeadsTransposed,
    kMinusOne,  // a vector; the file has w - 1 (Gemma's norms)
    kOneRow,    // a vector; the file has a matrix of one row
  };
  static constexpr Form Untransposed(Form form) {
    return form == kTransposed               ? kWhole
           : form == kFusedTransposed        ? kFused
           : form == kFusedInHeadsTransposed ? kFusedInHeads
                                             : form;
  }
  // The first "{}" is the number of the layer, a second one that of the expert; in a tensor of no layer, the first is
  // that of the stream. Empty: this spelling has no such tensor.
  std::string_view pattern;
  Form form = kWhole;
  std::string_view alternative;  // the pattern of other models of the family
  bool stacked = false;          // the file's tensor has those of all experts, one after another

  constexpr TensorSource() = default;
  constexpr TensorSource(const char* name, Form how = kWhole, std::string_view other = {})
      : pattern(name), form(how), alternative(other) {}
  static constexpr TensorSource Stacked(const char* name, Form how = kWhole) {
    TensorSource source(name, how);
    source.stacked = true;
    return source;
  }
  std::string Name(int64_t layer, int64_t expert = -1) const { return NameOf(pattern, layer, expert); }
  static std::string NameOf(std::string_view pattern, int64_t layer, int64_t expert = -1);
};

// Tensors by role.
struct TensorNames {
  std::array<TensorSource, kMatrixRoles + kVectorRoles> sources;
  std::span<const std::string_view> ignored;  // suffixes of recomputed tables, which hold no weights
  std::string_view optional_prefix;           // which some files leave out

  constexpr const TensorSource& Of(Role role) const { return sources[static_cast<size_t>(role)]; }
  std::string Name(Role role, int64_t layer = 0) const { return Of(role).Name(layer); }
  // The same but for these.
  constexpr TensorNames With(std::initializer_list<std::pair<Role, TensorSource>> others) const {
    TensorNames names = *this;
    for (const auto& [role, source] : others) names.sources[static_cast<size_t>(role)] = source;
    return names;
  }
};

inline constexpr std::array<std::string_view, 1> kHfIgnored = {".rotary_emb.inv_freq"};
// Read as RopeConfig::frequency_factors, short_factors and long_factors.
inline constexpr std::array<std::string_view, 3> kGgufIgnored = {"rope_freqs.weight", "rope_factors_short.weight",
                                                                 "rope_factors_long.weight"};

// The names of transformers' Llama, shared by its descendants.
inline constexpr TensorNames kHfTensorNames = [] {
  TensorNames names = TensorNames{}.With({
      {Role::kEmbedding, "model.embed_tokens.weight"},
      {Role::kLmHead, "lm_head.weight"},
      {Role::kFinalNorm, "model.norm.weight"},
      {Role::kFinalNormBias, "model.norm.bias"},
      {Role::kAttentionNorm, "model.layers.{}.input_layernorm.weight"},
      {Role::kAttentionNormBias, "model.layers.{}.input_layernorm.bias"},
      {Role::kFeedForwardNorm, "model.layers.{}.post_attention_layernorm.weight"},
      {Role::kFeedForwardNormBias, "model.layers.{}.post_attention_layernorm.bias"},
      {Role::kSinks, "model.layers.{}.self_attn.sinks"},
      {Role::kQNorm, "model.layers.{}.self_attn.q_norm.weight"},
      {Role::kKNorm, "model.layers.{}.self_attn.k_norm.weight"},
      {Role::kQ, "model.layers.{}.self_attn.q_proj.weight"},
      {Role::kK, "model.layers.{}.self_attn.k_proj.weight"},
      {Role::kV, "model.layers.{}.self_attn.v_proj.weight"},
      {Role::kO, "model.layers.{}.self_attn.o_proj.weight"},
      {Role::kQBias, "model.layers.{}.self_attn.q_proj.bias"},
      {Role::kKBias, "model.layers.{}.self_attn.k_proj.bias"},
      {Role::kVBias, "model.layers.{}.self_attn.v_proj.bias"},
      {Role::kOBias, "model.layers.{}.self_attn.o_proj.bias"},
      {Role::kGate, "model.layers.{}.mlp.gate_proj.weight"},
      {Role::kUp, "model.layers.{}.mlp.up_proj.weight"},
      {Role::kDown, "model.layers.{}.mlp.down_proj.weight"},
      {Role::kGateBias, "model.layers.{}.mlp.gate_proj.bias"},
      {Role::kUpBias, "model.layers.{}.mlp.up_proj.bias"},
      {Role::kDownBias, "model.layers.{}.mlp.down_proj.bias"},
      {Role::kRouter, "model.layers.{}.mlp.gate.weight"},
      {Role::kChoiceBias, "model.layers.{}.mlp.gate.e_score_correction_bias"},
      {Role::kExpertGate, "model.layers.{}.mlp.experts.{}.gate_proj.weight"},
      {Role::kExpertUp, "model.layers.{}.mlp.experts.{}.up_proj.weight"},
      {Role::kExpertDown, "model.layers.{}.mlp.experts.{}.down_proj.weight"},
      {Role::kSharedGate, "model.layers.{}.mlp.shared_experts.gate_proj.weight"},
      {Role::kSharedUp, "model.layers.{}.mlp.shared_experts.up_proj.weight"},
      {Role::kSharedDown, "model.layers.{}.mlp.shared_experts.down_proj.weight"},
      {Role::kInputTable, "model.embed_tokens_per_layer.weight"},
      {Role::kInputProjection, "model.per_layer_model_projection.weight"},
      {Role::kInputNorm, "model.per_layer_projection_norm.weight"},
      {Role::kInputGate, "model.layers.{}.per_layer_input_gate.weight"},
      {Role::kInputDown, "model.layers.{}.per_layer_projection.weight"},
      {Role::kInputPostNorm, "model.layers.{}.post_per_layer_input_norm.weight"},
      {Role::kLayerScale, "model.layers.{}.layer_scalar"},
  });
  names.ignored = kHfIgnored;
  return names;
}();

// transformers' names of a layer with norms after its blocks alone (OLMo 2, EXAONE 4).
inline constexpr TensorNames kPostNormHfNames = kHfTensorNames.With({
    {Role::kAttentionPostNorm, "model.layers.{}.post_attention_layernorm.weight"},
    {Role::kFeedForwardPostNorm, "model.layers.{}.post_feedforward_layernorm.weight"},
});

// transformers' names of a layer with norms before and after its blocks (Gemma).
inline constexpr TensorNames kPrePostNormHfNames = kPostNormHfNames.With({
    {Role::kFeedForwardNorm, "model.layers.{}.pre_feedforward_layernorm.weight"},
});

inline constexpr TensorNames kGgufTensorNames = [] {
  TensorNames names = TensorNames{}.With({
      {Role::kEmbedding, "token_embd.weight"},
      {Role::kLmHead, "output.weight"},
      {Role::kPositions, "position_embd.weight"},
      {Role::kEmbeddingNorm, "token_embd_norm.weight"},
      {Role::kEmbeddingNormBias, "token_embd_norm.bias"},
      {Role::kFinalNorm, "output_norm.weight"},
      {Role::kFinalNormBias, "output_norm.bias"},
      {Role::kLmHeadBias, "output.bias"},
      {Role::kAttentionNorm, "blk.{}.attn_norm.weight"},
      {Role::kAttentionNormBias, "blk.{}.attn_norm.bias"},
      {Role::kAttentionPostNorm, "blk.{}.post_attention_norm.weight"},
      {Role::kSinks, "blk.{}.attn_sinks.weight"},
      {Role::kFeedForwardNorm, "blk.{}.ffn_norm.weight"},
      {Role::kFeedForwardNormBias, "blk.{}.ffn_norm.bias"},
      {Role::kFeedForwardPostNorm, "blk.{}.post_ffw_norm.weight"},
      {Role::kQNorm, "blk.{}.attn_q_norm.weight"},
      {Role::kKNorm, "blk.{}.attn_k_norm.weight"},
      {Role::kQ, "blk.{}.attn_q.weight"},
      {Role::kK, "blk.{}.attn_k.weight"},
      {Role::kV, "blk.{}.attn_v.weight"},
      {Role::kO, "blk.{}.attn_output.weight"},
      {Role::kQBias, "blk.{}.attn_q.bias"},
      {Role::kKBias, "blk.{}.attn_k.bias"},
      {Role::kVBias, "blk.{}.attn_v.bias"},
      {Role::kOBias, "blk.{}.attn_output.bias"},
      {Role::kGate, "blk.{}.ffn_gate.weight"},
      {Role::kUp, "blk.{}.ffn_up.weight"},
      {Role::kDown, "blk.{}.ffn_down.weight"},
      {Role::kGateBias, "blk.{}.ffn_gate.bias"},
      {Role::kUpBias, "blk.{}.ffn_up.bias"},
      {Role::kDownBias, "blk.{}.ffn_down.bias"},
      {Role::kRouter, "blk.{}.ffn_gate_inp.weight"},
      {Role::kRouterBias, "blk.{}.ffn_gate_inp.bias"},
      {Role::kChoiceBias, "blk.{}.exp_probs_b.bias"},
      {Role::kExpertGate, TensorSource::Stacked("blk.{}.ffn_gate_exps.weight")},
      {Role::kExpertUp, TensorSource::Stacked("blk.{}.ffn_up_exps.weight")},
      {Role::kExpertDown, TensorSource::Stacked("blk.{}.ffn_down_exps.weight")},
      {Role::kExpertGateBias, TensorSource::Stacked("blk.{}.ffn_gate_exps.bias")},
      {Role::kExpertUpBias, TensorSource::Stacked("blk.{}.ffn_up_exps.bias")},
      {Role::kExpertDownBias, TensorSource::Stacked("blk.{}.ffn_down_exps.bias")},
      {Role::kSharedGate, "blk.{}.ffn_gate_shexp.weight"},
      {Role::kSharedUp, "blk.{}.ffn_up_shexp.weight"},
      {Role::kSharedDown, "blk.{}.ffn_down_shexp.weight"},
      {Role::kSharedWeight, "blk.{}.ffn_gate_inp_shexp.weight"},
      {Role::kInputTable, "per_layer_token_embd.weight"},
      {Role::kInputProjection, "per_layer_model_proj.weight"},
      {Role::kInputNorm, "per_layer_proj_norm.weight"},
      {Role::kInputGate, "blk.{}.inp_gate.weight"},
      {Role::kInputDown, "blk.{}.proj.weight"},
      {Role::kInputPostNorm, "blk.{}.post_norm.weight"},
      {Role::kLayerScale, "blk.{}.layer_output_scale.weight"},
  });
  names.ignored = kGgufIgnored;
  return names;
}();

}  // namespace tactus::compute
