// Hunyuan, its dense models: Llama with norms of q and k after their rotation, and a rotary base that `alpha`
// stretches.
#include "compute/config/architecture.h"

#include <cmath>

namespace tactus::compute::arch {
namespace hunyuan_family {

constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kQNorm, "model.layers.{}.self_attn.query_layernorm.weight"},
    {Role::kKNorm, "model.layers.{}.self_attn.key_layernorm.weight"},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  // config.json names the scaling "dynamic"; with `alpha` it depends on no length. GGUF files have the stretched base.
  std::optional<double> alpha = fields.Number({"rope_parameters.alpha"});
  if (!alpha.has_value()) alpha = fields.Number({"rope_scaling.alpha"});
  if (alpha.has_value() && *alpha > 0.0) {
    const auto dim = static_cast<double>(shape.head_dim);
    if (config->rope.scaling == RopeScaling::kDynamic) config->max_position = config->rope.original_max_position;
    config->rope.scaling = RopeScaling::kNone;
    config->rope.theta = static_cast<float>(config->rope.theta * std::pow(*alpha, dim / (dim - 2.0)));
  }
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).norms_last = true;
  return layers;
}

}  // namespace hunyuan_family

extern constinit const Architecture hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    .hf_class = "HunYuanDenseV1ForCausalLM",
    .hf_model_type = "hunyuan_v1_dense",
    .gguf_name = "hunyuan-dense",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .qk_norm = true,
    .layers = hunyuan_family::Layers,
    .hf_norm_eps = 1e-5,
    .hf_names = &hunyuan_family::kHfNames,
};

}  // namespace tactus::compute::arch
