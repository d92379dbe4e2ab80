// Granite 3.1 and 4 with experts and a shared one. Its GGUF files have the architecture "granitemoe".
#include "compute/config/arch/granite.h"

namespace tactus::compute::arch {
namespace granitemoeshared_family {

bool HasSharedExpert(const ModelConfig& config) {
  const ExpertsBlock* const experts = ExpertsOf(config.layers[0]);
  return experts != nullptr && experts->shared_inner > 0;
}

}  // namespace granitemoeshared_family

extern constinit const Architecture granitemoeshared = {
    .name = "granitemoeshared",
    .hf_class = "GraniteMoeSharedForCausalLM",
    .hf_model_type = "granitemoeshared",
    .gguf_read_as = "granitemoe",
    .is_of_gguf = granitemoeshared_family::HasSharedExpert,
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .layers = GraniteMoeLayers,
    .hf_mixture = kGraniteSharedMixture,
    .hf_names = &kGraniteMoeHfNames,
};

}  // namespace tactus::compute::arch
