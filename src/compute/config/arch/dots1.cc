// dots.llm1: Qwen3's attention with DeepSeek-V3's router, and a shared expert.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace dots1_family {

constexpr HfMixtureKeys kMixture{.experts = "n_routed_experts"};

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.inner = 1408});
  SetSigmoidRouter(fields, false, &experts);
  SetSharedExperts(WholeNumber(fields, {kMixture.shared}, "expert_shared_count", 0), &experts);
  return WithExperts(PreNormLayers(fields, shape, config), experts, AllButFirst(fields, shape, 0));
}

}  // namespace dots1_family

extern constinit const Architecture dots1 = {
    .name = "dots1",
    .hf_class = "Dots1ForCausalLM",
    .hf_model_type = "dots1",
    .gguf_name = "dots1",
    .hf_defaults = {.num_kv_heads = 32, .max_position = 2048},
    .attention_bias_key = true,
    .qk_norm = true,
    .layers = dots1_family::Layers,
    .hf_mixture = dots1_family::kMixture,
};

}  // namespace tactus::compute::arch
