// Hunyuan, its dense models: Llama with norms of q and k after their rotation, and a rotary base that `alpha`
// stretches.
#include "compute/config/arch/hunyuan.h"

#include <cmath>

namespace tactus::compute::arch {

std::vector<Layer> HunyuanLayers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
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

extern constinit const Architecture hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    .hf_class = "HunYuanDenseV1ForCausalLM",
    .hf_model_type = "hunyuan_v1_dense",
    .gguf_name = "hunyuan-dense",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .qk_norm = true,
    .layers = HunyuanLayers,
    .hf_norm_eps = 1e-5,
    .hf_names = &kHunyuanHfNames,
};

}  // namespace tactus::compute::arch
