// Llama 2, 3 and 3.1, and models saved in its format: SmolLM2, TinyLlama, Yi. In GGUF also Mistral and Mixtral.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace llama_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  if (fields.NumberOr({nullptr, "expert_count"}, 0.0) == 0.0f) return layers;
  ExpertsBlock experts = ExpertsFrom(fields, shape, {});
  experts.router.score = RouterScore::kChosenSoftmax;
  return WithExperts(std::move(layers), experts, EveryLayer(shape));
}

}  // namespace llama_family

extern constinit const Architecture llama = {
    .name = "llama",
    .hf_class = "LlamaForCausalLM",
    .hf_model_type = "llama",
    .gguf_name = "llama",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .mlp_bias_key = true,
    .layers = llama_family::Layers,
    .gguf_interleaved_rope = true,
};

}  // namespace tactus::compute::arch
