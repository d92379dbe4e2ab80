// Granite 3 with experts, whose gate and up are one matrix.
#include "compute/config/arch/granite.h"

namespace tactus::compute::arch {

std::vector<Layer> GraniteMoeLayers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 8, .chosen = 2});
  experts.router.score = RouterScore::kChosenSoftmax;
  experts.shared_inner =
      WholeNumber(fields, {kGraniteSharedMixture.shared_inner}, "expert_shared_feed_forward_length", 0);
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  SetGraniteMultipliers(fields, config, &layers);
  return WithExperts(std::move(layers), experts, EveryLayer(shape));
}

extern constinit const Architecture granitemoe = {
    .name = "granitemoe",
    .hf_class = "GraniteMoeForCausalLM",
    .hf_model_type = "granitemoe",
    .gguf_name = "granitemoe",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .layers = GraniteMoeLayers,
    .hf_mixture = {.experts = "num_local_experts", .inner = nullptr},
    .gguf_interleaved_rope = true,
    .hf_names = &kGraniteMoeHfNames,
};

}  // namespace tactus::compute::arch
