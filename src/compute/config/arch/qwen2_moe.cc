// Qwen2-MoE (Qwen1.5-MoE-A2.7B): Qwen2 with experts beside a shared one, which sigmoid(x . w) weighs.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace qwen2_moe_family {

constexpr HfMixtureKeys kMixture{.shared_inner = "shared_expert_intermediate_size"};
constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kSharedGate, "model.layers.{}.mlp.shared_expert.gate_proj.weight"},
    {Role::kSharedUp, "model.layers.{}.mlp.shared_expert.up_proj.weight"},
    {Role::kSharedDown, "model.layers.{}.mlp.shared_expert.down_proj.weight"},
    {Role::kSharedWeight, "model.layers.{}.mlp.shared_expert_gate.weight"},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 60, .chosen = 4, .inner = 1408});
  experts.router.renormalise = fields.FlagOr({"norm_topk_prob"}, false);
  experts.shared_inner = WholeNumber(fields, {kMixture.shared_inner}, "expert_shared_feed_forward_length", 5632);
  experts.shared_weight = true;
  return WithExperts(PreNormLayers(fields, shape, config), experts, EveryStep(fields, shape));
}

}  // namespace qwen2_moe_family

extern constinit const Architecture qwen2_moe = {
    .name = "qwen2_moe",
    .hf_class = "Qwen2MoeForCausalLM",
    .hf_model_type = "qwen2_moe",
    .gguf_name = "qwen2moe",
    .hf_defaults = {.num_kv_heads = 16, .max_position = 32768, .sliding_window = 4096},
    .window = WindowRule::kUpperLayers,
    .qkv_bias = true,
    .layers = qwen2_moe_family::Layers,
    .hf_mixture = qwen2_moe_family::kMixture,
    .hf_names = &qwen2_moe_family::kHfNames,
};

}  // namespace tactus::compute::arch
