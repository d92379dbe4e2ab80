// GLM-4.5 and 4.6: dense first layers, then experts chosen by sigmoid scores with a bias, beside a shared one.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace glm4_moe_family {

constexpr HfKeys kHfKeys{.qk_norm = "use_qk_norm"};
constexpr HfMixtureKeys kMixture{.experts = "n_routed_experts"};
constexpr TensorNames kGgufNames = kGgufTensorNames.With({
    {Role::kFeedForwardNorm, "blk.{}.post_attention_norm.weight"},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 128, .chosen = 8, .inner = 1408});
  SetSigmoidRouter(fields, true, &experts);
  SetSharedExperts(WholeNumber(fields, {kMixture.shared}, "expert_shared_count", 1), &experts);
  if (!fields.gguf() && !fields.Number({"partial_rotary_factor"}).has_value() &&
      !fields.Number({"rope_parameters.partial_rotary_factor"}).has_value()) {
    config->rope.rotary_dim = static_cast<int32_t>(shape.head_dim / 2);  // transformers' default
  }
  // GGUF files count the layers that predict further tokens, config.json does not.
  config->unused_layers =
      WholeNumber(fields, {"num_nextn_predict_layers", "num_mtp_layers"}, "nextn_predict_layers", 0);
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  if (fields.gguf() && config->unused_layers < shape.num_layers) {
    layers.resize(layers.size() - static_cast<size_t>(config->unused_layers));
  }
  const bool qk_norm = fields.FlagOr({kHfKeys.qk_norm}, shape.qk_norm);
  for (Layer& layer : layers) {
    std::get<AttentionBlock>(layer[0].block).qk_norm = qk_norm ? QkNorm::kHeads : QkNorm::kNone;
  }
  return WithExperts(std::move(layers), experts, AllButFirst(fields, shape, 1));
}

}  // namespace glm4_moe_family

extern constinit const Architecture glm4_moe = {
    .name = "glm4_moe",
    .hf_class = "Glm4MoeForCausalLM",
    .hf_model_type = "glm4_moe",
    .gguf_name = "glm4moe",
    .hf_defaults = {.num_kv_heads = 8, .max_position = 131072},
    .qkv_bias_key = "attention_bias",
    .gguf_qk_norm = true,
    .layers = glm4_moe_family::Layers,
    .hf_keys = glm4_moe_family::kHfKeys,
    .hf_mixture = glm4_moe_family::kMixture,
    .hf_norm_eps = 1e-5,
    .gguf_names = &glm4_moe_family::kGgufNames,
};

}  // namespace tactus::compute::arch
