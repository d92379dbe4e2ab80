// Granite 3: Llama with multipliers of the embedding, of attention, of each block's sum, and of the logits.
#include "compute/config/arch/granite.h"

namespace tactus::compute::arch {

void SetGraniteMultipliers(FamilyFields& fields, ModelConfig* config, std::vector<Layer>* layers) {
  config->embedding_scale = fields.NumberOr({"embedding_multiplier", "embedding_scale"}, 1.0);
  config->logits_scale = 1.0f / fields.NumberOr({"logits_scaling", "logit_scale"}, 1.0);
  const float scale = fields.NumberOr({"attention_multiplier", "attention.scale"}, fields.gguf() ? 0.0 : 1.0);
  const float multiplier = fields.NumberOr({"residual_multiplier", "residual_scale"}, 1.0);
  for (Layer& layer : *layers) {
    std::get<AttentionBlock>(layer[0].block).scale = scale;
    for (LayerBlock& b : layer) b.multiplier = multiplier;
  }
}

namespace granite_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  SetGraniteMultipliers(fields, config, &layers);
  return layers;
}

}  // namespace granite_family

extern constinit const Architecture granite = {
    .name = "granite",
    .hf_class = "GraniteForCausalLM",
    .hf_model_type = "granite",
    .gguf_name = "granite",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .mlp_bias_key = true,
    .layers = granite_family::Layers,
    .gguf_interleaved_rope = true,
};

}  // namespace tactus::compute::arch
