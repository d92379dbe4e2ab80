// Phi-3.5-MoE: LayerNorms, LongRoPE, and sixteen experts chosen by SparseMixer.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace phimoe_family {

constexpr HfKeys kHfKeys{.lm_head_bias = "lm_head_bias"};
constexpr TensorNames kHfNames = kMixtralHfNames.With({{Role::kLmHeadBias, "lm_head.bias"}});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  const FieldKey jitter{"router_jitter_noise"};
  if (fields.NumberOr(jitter, 0.01) != 0.01f) fields.Refuse(jitter, "is not 0.01, the only one that is supported");
  config->lm_head_bias = fields.FlagOr({kHfKeys.lm_head_bias}, fields.gguf());
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 16, .chosen = 2});
  experts.router.score = RouterScore::kSparseMixer;
  if (experts.router.chosen != 2) fields.Refuse({"num_experts_per_tok", "expert_used_count"}, "is not 2");
  return WithExperts(LayerNormLayers(shape, GatedOf(shape)), experts, EveryLayer(shape));
}

}  // namespace phimoe_family

extern constinit const Architecture phimoe = {
    .name = "phimoe",
    .hf_class = "PhimoeForCausalLM",
    .hf_model_type = "phimoe",
    .gguf_name = "phimoe",
    .hf_defaults = {.num_kv_heads = 8, .max_position = 131072, .bos_id = 1, .eos_id = 2},
    .window = WindowRule::kEveryLayer,
    .attention_bias_key = true,
    .layers = phimoe_family::Layers,
    .hf_keys = phimoe_family::kHfKeys,
    .hf_mixture = {.experts = "num_local_experts", .inner = nullptr},
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
    .gguf_rms_eps = true,  // the key that llama.cpp reads
    .hf_names = &phimoe_family::kHfNames,
};

}  // namespace tactus::compute::arch
