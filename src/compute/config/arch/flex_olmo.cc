// FlexOlmo: OLMo 2 with a mixture of experts.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace flex_olmo_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig*) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 7, .chosen = 5});
  experts.router.renormalise = fields.FlagOr({"norm_topk_prob"}, false);
  std::vector<Layer> layers = PostNormLayers(shape);
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).qk_norm = QkNorm::kWidth;
  return WithExperts(std::move(layers), experts, EveryLayer(shape));
}

}  // namespace flex_olmo_family

extern constinit const Architecture flex_olmo = {
    .name = "flex_olmo",
    .hf_class = "FlexOlmoForCausalLM",
    .hf_model_type = "flex_olmo",
    .hf_defaults = {.max_position = 4096, .eos_id = 100257},
    .attention_bias_key = true,
    .layers = flex_olmo_family::Layers,
    .hf_mixture = {.inner = nullptr},
    .hf_names = &kPostNormHfNames,
};

}  // namespace tactus::compute::arch
