// Gemma 4 12B, its text: Gemma 4 under other names. Its GGUF files name the architecture "gemma4".
#include "compute/config/arch/gemma4_layers.h"
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace gemma4_unified_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  constexpr FieldKey kExperts{"enable_moe_block"};
  if (fields.FlagOr(kExperts, false)) fields.Refuse(kExperts, "is true; models of this class have no experts");
  return gemma4_family::Layers(fields, shape, config);
}

}  // namespace gemma4_unified_family

extern constinit const Architecture gemma4_unified_text = {
    .name = "gemma4_unified_text",
    .hf_class = "Gemma4UnifiedForCausalLM",
    .hf_model_type = "gemma4_unified_text",
    .gguf_read_as = "gemma4",
    .hf_defaults = {.num_kv_heads = 4, .head_dim = 256, .max_position = 131072, .bos_id = 2, .eos_id = 1, .tied = true},
    .attention_bias_key = true,
    .layers = gemma4_unified_family::Layers,
    .hf_keys = {.activation = "hidden_activation"},
    .activation = Activation::kGeluTanh,
    .hf_names = &kPrePostNormHfNames,
};

}  // namespace tactus::compute::arch
