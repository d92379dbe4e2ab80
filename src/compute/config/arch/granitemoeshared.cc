// Granite 3.1 and 4 with experts and a shared one. Its GGUF files have the architecture "granitemoe".
#include "compute/config/arch/granite.h"

namespace tactus::compute::arch {

extern constinit const Architecture granitemoeshared = {
    .name = "granitemoeshared",
    .hf_class = "GraniteMoeSharedForCausalLM",
    .hf_model_type = "granitemoeshared",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .layers = GraniteMoeLayers,
    .hf_names = &kGraniteMoeHfNames,
};

}  // namespace tactus::compute::arch
