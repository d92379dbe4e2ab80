// OPT: learned positions from row 2 on, LayerNorm, ReLU, biases everywhere. No GGUF form is known.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace opt_family {

constexpr TensorNames kHfNames = [] {
  TensorNames names = TensorNames{}.With({
      {Role::kEmbedding, "model.decoder.embed_tokens.weight"},
      {Role::kPositions, {"model.decoder.embed_positions.weight", TensorSource::kFused}},
      {Role::kLmHead, "lm_head.weight"},
      {Role::kFinalNorm, "model.decoder.final_layer_norm.weight"},
      {Role::kFinalNormBias, "model.decoder.final_layer_norm.bias"},
      {Role::kAttentionNorm, "model.decoder.layers.{}.self_attn_layer_norm.weight"},
      {Role::kAttentionNormBias, "model.decoder.layers.{}.self_attn_layer_norm.bias"},
      {Role::kFeedForwardNorm, "model.decoder.layers.{}.final_layer_norm.weight"},
      {Role::kFeedForwardNormBias, "model.decoder.layers.{}.final_layer_norm.bias"},
      {Role::kQ, "model.decoder.layers.{}.self_attn.q_proj.weight"},
      {Role::kK, "model.decoder.layers.{}.self_attn.k_proj.weight"},
      {Role::kV, "model.decoder.layers.{}.self_attn.v_proj.weight"},
      {Role::kO, "model.decoder.layers.{}.self_attn.out_proj.weight"},
      {Role::kQBias, "model.decoder.layers.{}.self_attn.q_proj.bias"},
      {Role::kKBias, "model.decoder.layers.{}.self_attn.k_proj.bias"},
      {Role::kVBias, "model.decoder.layers.{}.self_attn.v_proj.bias"},
      {Role::kOBias, "model.decoder.layers.{}.self_attn.out_proj.bias"},
      {Role::kUp, "model.decoder.layers.{}.fc1.weight"},
      {Role::kUpBias, "model.decoder.layers.{}.fc1.bias"},
      {Role::kDown, "model.decoder.layers.{}.fc2.weight"},
      {Role::kDownBias, "model.decoder.layers.{}.fc2.bias"},
  });
  names.optional_prefix = "model.";
  return names;
}();

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& stated, ModelConfig* config) {
  constexpr FieldKey kBefore{"do_layer_norm_before"}, kWidth{"word_embed_proj_dim"},
      kAffine{"layer_norm_elementwise_affine"};
  if (!fields.FlagOr(kBefore, true)) fields.Refuse(kBefore, "is false (OPT-350m), which is not supported");
  if (!fields.FlagOr(kAffine, true)) fields.Refuse(kAffine, "is false, which is not supported");
  if (fields.Number(kWidth).value_or(static_cast<double>(config->hidden_size)) !=
      static_cast<double>(config->hidden_size)) {
    fields.Refuse(kWidth, "differs from hidden_size (OPT-350m), which is not supported");
  }
  config->learned_positions = config->max_position;
  config->first_position = 2;
  StatedShape shape = stated;
  shape.num_kv_heads = shape.num_heads;
  shape.qkv_bias = shape.o_bias = shape.mlp_bias = fields.FlagOr({"enable_bias"}, true);
  std::vector<Layer> layers = LayerNormLayers(shape, PlainOf(shape));
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).rope = RopeChoice::kNone;
  return layers;
}

}  // namespace opt_family

extern constinit const Architecture opt = {
    .name = "opt",
    .hf_class = "OPTForCausalLM",
    .hf_model_type = "opt",
    .hf_defaults = {.max_position = 2048, .bos_id = 2, .eos_id = 2, .tied = true},
    .layers = opt_family::Layers,
    .hf_keys = {.inner = "ffn_dim", .norm_eps = "layer_norm_eps", .activation = "activation_function"},
    .activation = Activation::kRelu,
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
    .hf_names = &opt_family::kHfNames,
};

}  // namespace tactus::compute::arch
