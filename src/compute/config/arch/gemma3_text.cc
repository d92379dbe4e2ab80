// Gemma 3, its text: Gemma 2 without soft caps, with norms of q and k, and five layers with a window and a base of
// their own for each layer without.
#include "compute/config/architecture.h"

#include <cmath>

namespace tactus::compute::arch {
namespace gemma3_text_family {

constexpr HfKeys kHfKeys{.activation = "hidden_activation", .query_scalar = "query_pre_attn_scalar"};
constexpr TensorSource::Form kMinusOne = TensorSource::kMinusOne;
constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kFinalNorm, {"model.norm.weight", kMinusOne}},
    {Role::kAttentionNorm, {"model.layers.{}.input_layernorm.weight", kMinusOne}},
    {Role::kAttentionPostNorm, {"model.layers.{}.post_attention_layernorm.weight", kMinusOne}},
    {Role::kQNorm, {"model.layers.{}.self_attn.q_norm.weight", kMinusOne}},
    {Role::kKNorm, {"model.layers.{}.self_attn.k_norm.weight", kMinusOne}},
    {Role::kFeedForwardNorm, {"model.layers.{}.pre_feedforward_layernorm.weight", kMinusOne}},
    {Role::kFeedForwardPostNorm, {"model.layers.{}.post_feedforward_layernorm.weight", kMinusOne}},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  config->logits_softcap = fields.NumberOr({"final_logit_softcapping", "final_logit_softcapping"}, 0.0);
  // The context is stated after scaling.
  if (!fields.gguf() && config->rope.scaling == RopeScaling::kLinear && config->rope.factor >= 1.0f) {
    config->max_position = static_cast<int64_t>(static_cast<double>(config->max_position) / config->rope.factor);
  }
  if (!config->local_rope.has_value()) {  // one base is stated, or in another place
    if (!fields.Number({"rope_theta", "rope.freq_base"}).has_value()) config->rope.theta = 1e6f;
    config->local_rope.emplace();
    config->local_rope->theta = fields.NumberOr({"rope_local_base_freq", "rope.freq_base_swa"}, 1e4);
  }
  const double squared = fields.gguf() && shape.num_layers == 62
                             ? static_cast<double>(config->hidden_size) / static_cast<double>(shape.num_heads)  // 27B
                         : fields.gguf() ? static_cast<double>(shape.head_dim)
                                         : fields.Number({kHfKeys.query_scalar}).value_or(256.0);
  const std::vector<double> pattern = fields.Numbers(kWindowPattern);
  const int64_t period = pattern.size() == 1 ? WholeOf(fields, kWindowPattern, pattern[0], 6)
                                             : WholeNumber(fields, {"sliding_window_pattern"}, nullptr, 6);
  std::vector<Layer> layers = PrePostNormLayers(shape);
  SetWindows(fields, WindowOr(fields, 4096), period, &layers);
  for (Layer& layer : layers) {
    auto& attention = std::get<AttentionBlock>(layer[0].block);
    attention.qk_norm = QkNorm::kHeads;
    attention.scale = static_cast<float>(1.0 / std::sqrt(squared));
    attention.rope = attention.window > 0 ? RopeChoice::kLocal : RopeChoice::kMain;
  }
  return layers;
}

}  // namespace gemma3_text_family

extern constinit const Architecture gemma3_text = {
    .name = "gemma3_text",
    .hf_class = "Gemma3ForCausalLM",
    .hf_model_type = "gemma3_text",
    .gguf_name = "gemma3",
    .hf_defaults = {.num_kv_heads = 4,
                    .head_dim = 256,
                    .max_position = 131072,
                    .bos_id = 2,
                    .eos_id = 1,
                    .tied = true,
                    .vocab = 262208,
                    .heads = 8},
    .attention_bias_key = true,
    .layers = gemma3_text_family::Layers,
    .hf_keys = gemma3_text_family::kHfKeys,
    .activation = Activation::kGeluTanh,
    .hf_names = &gemma3_text_family::kHfNames,
};

}  // namespace tactus::compute::arch
