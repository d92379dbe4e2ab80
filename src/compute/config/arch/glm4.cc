// GLM-4 (0414): norms before and after the blocks, gate and up in one matrix, rotation of neighbouring pairs in half of
// a head.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace glm4_family {

constexpr TensorSource kHfGateUp{"model.layers.{}.mlp.gate_up_proj.weight", TensorSource::kFused};
constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kAttentionPostNorm, "model.layers.{}.post_self_attn_layernorm.weight"},
    {Role::kFeedForwardPostNorm, "model.layers.{}.post_mlp_layernorm.weight"},
    {Role::kGate, kHfGateUp},
    {Role::kUp, kHfGateUp},
});
constexpr TensorSource kGgufGateUp{"blk.{}.ffn_up.weight", TensorSource::kFused};
constexpr TensorNames kGgufNames = kGgufTensorNames.With({{Role::kGate, kGgufGateUp}, {Role::kUp, kGgufGateUp}});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  config->rope.interleaved = true;
  if (!fields.gguf() && !fields.Number({"partial_rotary_factor"}).has_value() &&
      !fields.Number({"rope_parameters.partial_rotary_factor"}).has_value()) {
    config->rope.rotary_dim = static_cast<int32_t>(shape.head_dim / 2);  // transformers' default
  }
  return PrePostNormLayers(shape);
}

}  // namespace glm4_family

extern constinit const Architecture glm4 = {
    .name = "glm4",
    .hf_class = "Glm4ForCausalLM",
    .hf_model_type = "glm4",
    .gguf_name = "glm4",
    .hf_defaults = {.num_kv_heads = 2, .head_dim = 128, .max_position = 131072},
    .qkv_bias_key = "attention_bias",
    .layers = glm4_family::Layers,
    .hf_norm_eps = 1.5625e-7,
    .hf_names = &glm4_family::kHfNames,
    .gguf_names = &glm4_family::kGgufNames,
};

}  // namespace tactus::compute::arch
