// GPT-NeoX and Pythia: LayerNorm, q, k and v fused head by head, partial rotation, attention and feed-forward side by
// side.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace gpt_neox_family {

constexpr HfKeys kHfKeys{.norm_eps = "layer_norm_eps", .rotary_part = "rotary_pct", .rope_theta = "rotary_emb_base"};
constexpr TensorSource kQkv{"gpt_neox.layers.{}.attention.query_key_value.weight", TensorSource::kFusedInHeads};
constexpr TensorSource kQkvBias{"gpt_neox.layers.{}.attention.query_key_value.bias", TensorSource::kFusedInHeads};
constexpr std::array<std::string_view, 4> kIgnored = {".rotary_emb.inv_freq", ".attention.bias",
                                                      ".attention.masked_bias", ".attention.rotary_emb.inv_freq"};
constexpr TensorNames kHfNames = [] {
  TensorNames names = TensorNames{}.With({
      {Role::kEmbedding, "gpt_neox.embed_in.weight"},
      {Role::kLmHead, "embed_out.weight"},
      {Role::kFinalNorm, "gpt_neox.final_layer_norm.weight"},
      {Role::kFinalNormBias, "gpt_neox.final_layer_norm.bias"},
      {Role::kAttentionNorm, "gpt_neox.layers.{}.input_layernorm.weight"},
      {Role::kAttentionNormBias, "gpt_neox.layers.{}.input_layernorm.bias"},
      {Role::kFeedForwardNorm, "gpt_neox.layers.{}.post_attention_layernorm.weight"},
      {Role::kFeedForwardNormBias, "gpt_neox.layers.{}.post_attention_layernorm.bias"},
      {Role::kQ, kQkv},
      {Role::kK, kQkv},
      {Role::kV, kQkv},
      {Role::kQBias, kQkvBias},
      {Role::kKBias, kQkvBias},
      {Role::kVBias, kQkvBias},
      {Role::kO, "gpt_neox.layers.{}.attention.dense.weight"},
      {Role::kOBias, "gpt_neox.layers.{}.attention.dense.bias"},
      {Role::kUp, "gpt_neox.layers.{}.mlp.dense_h_to_4h.weight"},
      {Role::kUpBias, "gpt_neox.layers.{}.mlp.dense_h_to_4h.bias"},
      {Role::kDown, "gpt_neox.layers.{}.mlp.dense_4h_to_h.weight"},
      {Role::kDownBias, "gpt_neox.layers.{}.mlp.dense_4h_to_h.bias"},
  });
  names.ignored = kIgnored;
  return names;
}();
constexpr TensorSource kGgufQkv{"blk.{}.attn_qkv.weight", TensorSource::kFused};
constexpr TensorSource kGgufQkvBias{"blk.{}.attn_qkv.bias", TensorSource::kFused};
constexpr TensorNames kGgufNames = kGgufTensorNames.With({{Role::kQ, kGgufQkv},
                                                          {Role::kK, kGgufQkv},
                                                          {Role::kV, kGgufQkv},
                                                          {Role::kQBias, kGgufQkvBias},
                                                          {Role::kKBias, kGgufQkvBias},
                                                          {Role::kVBias, kGgufQkvBias}});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& stated, ModelConfig* config) {
  StatedShape shape = stated;
  shape.num_kv_heads = shape.num_heads;
  shape.mlp_bias = true;
  if (!fields.gguf()) {
    shape.qkv_bias = shape.o_bias = fields.FlagOr({"attention_bias"}, true);
    const std::optional<double> newer = fields.Number({"rope_parameters.partial_rotary_factor"});
    const double part = newer.has_value() ? *newer : fields.Number({kHfKeys.rotary_part}).value_or(0.25);
    config->rope.rotary_dim = static_cast<int32_t>(static_cast<double>(shape.head_dim) * part);
    const std::optional<double> base = fields.Number({"rope_parameters.rope_theta"});
    config->rope.theta = base.has_value() ? static_cast<float>(*base) : fields.NumberOr({kHfKeys.rope_theta}, 10000.0);
  }
  return LayerNormLayers(shape, PlainOf(shape),
                         {.parallel = fields.FlagOr({"use_parallel_residual", "use_parallel_residual"}, true)});
}

}  // namespace gpt_neox_family

extern constinit const Architecture gpt_neox = {
    .name = "gpt_neox",
    .hf_class = "GPTNeoXForCausalLM",
    .hf_model_type = "gpt_neox",
    .gguf_name = "gptneox",
    .hf_defaults = {.max_position = 2048, .bos_id = 0, .eos_id = 2},
    .layers = gpt_neox_family::Layers,
    .hf_keys = gpt_neox_family::kHfKeys,
    .activation = Activation::kGeluErf,
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
    .hf_names = &gpt_neox_family::kHfNames,
    .gguf_names = &gpt_neox_family::kGgufNames,
};

}  // namespace tactus::compute::arch
