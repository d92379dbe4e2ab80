// OLMoE: norms of q and k over their full width, and a mixture of 64 experts whose weights are those of the softmax
// over all.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace olmoe_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  const FieldKey clip{"clip_qkv", "attention.clamp_kqv"};
  if (fields.Number(clip).value_or(0.0) != 0.0) fields.Refuse(clip, "is set; limits of q, k and v are not supported");
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 64, .chosen = 8});
  experts.router.renormalise = fields.FlagOr({"norm_topk_prob"}, false);
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).qk_norm = QkNorm::kWidth;
  return WithExperts(std::move(layers), experts, EveryLayer(shape));
}

}  // namespace olmoe_family

extern constinit const Architecture olmoe = {
    .name = "olmoe",
    .hf_class = "OlmoeForCausalLM",
    .hf_model_type = "olmoe",
    .gguf_name = "olmoe",
    .hf_defaults = {.max_position = 4096, .eos_id = 50279},
    .attention_bias_key = true,
    .layers = olmoe_family::Layers,
    .hf_mixture = {.inner = nullptr},
    .hf_norm_eps = 1e-5,
};

}  // namespace tactus::compute::arch
