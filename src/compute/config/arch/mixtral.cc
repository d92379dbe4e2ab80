// Mixtral: Mistral with eight experts, of which the two with the largest logits share their softmax.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace mixtral_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 8, .chosen = 2});
  experts.router.score = RouterScore::kChosenSoftmax;
  return WithExperts(PreNormLayers(fields, shape, config), experts, EveryLayer(shape));
}

bool HasExperts(const ModelConfig& config) {
  return ExpertsOf(config.layers[0]) != nullptr;
}

}  // namespace mixtral_family

// GGUF files of Mixtral have the architecture "llama" (arch/llama.cc).
extern constinit const Architecture mixtral = {
    .name = "mixtral",
    .hf_class = "MixtralForCausalLM",
    .hf_model_type = "mixtral",
    .gguf_read_as = "llama",
    .is_of_gguf = mixtral_family::HasExperts,
    .hf_defaults = {.num_kv_heads = 8, .max_position = 131072, .bos_id = 1, .eos_id = 2},
    .window = WindowRule::kEveryLayer,
    .layers = mixtral_family::Layers,
    .hf_mixture = {.experts = "num_local_experts", .inner = nullptr},
    .hf_norm_eps = 1e-5,
    .hf_names = &kMixtralHfNames,
};

}  // namespace tactus::compute::arch
