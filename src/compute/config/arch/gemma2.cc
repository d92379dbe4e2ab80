// Gemma 2: Gemma with norms before and after each block, a window in every other layer, and soft-capped scores and
// logits.
#include "compute/config/architecture.h"

#include <cmath>

namespace tactus::compute::arch {
namespace gemma2_family {

constexpr HfKeys kHfKeys{.activation = "hidden_activation", .query_scalar = "query_pre_attn_scalar"};
constexpr TensorSource::Form kMinusOne = TensorSource::kMinusOne;
constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kFinalNorm, {"model.norm.weight", kMinusOne}},
    {Role::kAttentionNorm, {"model.layers.{}.input_layernorm.weight", kMinusOne}},
    {Role::kAttentionPostNorm, {"model.layers.{}.post_attention_layernorm.weight", kMinusOne}},
    {Role::kFeedForwardNorm, {"model.layers.{}.pre_feedforward_layernorm.weight", kMinusOne}},
    {Role::kFeedForwardPostNorm, {"model.layers.{}.post_feedforward_layernorm.weight", kMinusOne}},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  config->logits_softcap = fields.NumberOrOff({"final_logit_softcapping", "final_logit_softcapping"}, 30.0);
  const float softcap = fields.NumberOrOff({"attn_logit_softcapping", "attn_logit_softcapping"}, 50.0);
  // GGUF files state no scale: 1 / sqrt(head_dim), but in the 27B model 1 / sqrt(hidden size / heads).
  const bool is_27b = fields.gguf() && shape.num_layers == 46;
  const double squared = is_27b ? static_cast<double>(config->hidden_size) / static_cast<double>(shape.num_heads)
                         : fields.gguf() ? static_cast<double>(shape.head_dim)
                                         : fields.Number({kHfKeys.query_scalar}).value_or(256.0);
  std::vector<Layer> layers = PrePostNormLayers(shape);
  for (Layer& layer : layers) {
    auto& attention = std::get<AttentionBlock>(layer[0].block);
    attention.scale = static_cast<float>(1.0 / std::sqrt(squared));
    attention.softcap = softcap;
  }
  SetWindows(fields, WindowOr(fields, 4096), 2, &layers);
  return layers;
}

}  // namespace gemma2_family

extern constinit const Architecture gemma2 = {
    .name = "gemma2",
    .hf_class = "Gemma2ForCausalLM",
    .hf_model_type = "gemma2",
    .gguf_name = "gemma2",
    .hf_defaults = {.num_kv_heads = 4, .head_dim = 256, .max_position = 8192, .bos_id = 2, .eos_id = 1, .tied = true},
    .attention_bias_key = true,
    .layers = gemma2_family::Layers,
    .hf_keys = gemma2_family::kHfKeys,
    .activation = Activation::kGeluTanh,
    .hf_names = &gemma2_family::kHfNames,
};

}  // namespace tactus::compute::arch
