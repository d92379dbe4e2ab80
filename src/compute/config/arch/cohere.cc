// Command-R: one LayerNorm without bias, attention and feed-forward side by side, rotation of neighbouring pairs.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace cohere_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  constexpr FieldKey kQkNorm{"use_qk_norm"};
  if (fields.FlagOr(kQkNorm, false))
    fields.Refuse(kQkNorm, "is true, which is not supported (norms with weights per head)");
  config->final_norm.bias = Role::kNone;
  config->logits_scale = fields.NumberOr({"logit_scale", "logit_scale"}, 0.0625);
  config->rope.interleaved = true;
  return LayerNormLayers(shape, GatedOf(shape), {.bias = false, .parallel = true, .one_norm = true});
}

}  // namespace cohere_family

extern constinit const Architecture cohere = {
    .name = "cohere",
    .hf_class = "CohereForCausalLM",
    .hf_model_type = "cohere",
    .gguf_name = "command-r",
    .hf_defaults = {.max_position = 8192, .bos_id = 5, .eos_id = 255001, .tied = true},
    .attention_bias_key = true,
    .layers = cohere_family::Layers,
    .hf_keys = {.norm_eps = "layer_norm_eps"},
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
};

}  // namespace tactus::compute::arch
