// Qwen3 with mixtures of experts in place of its feed-forward blocks (Qwen3-30B-A3B, Qwen3-Coder).
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace qwen3_moe_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 128, .chosen = 8, .inner = 768});
  experts.router.renormalise = fields.FlagOr({"norm_topk_prob"}, fields.gguf());
  return WithExperts(PreNormLayers(fields, shape, config), experts, EveryStep(fields, shape));
}

}  // namespace qwen3_moe_family

extern constinit const Architecture qwen3_moe = {
    .name = "qwen3_moe",
    .hf_class = "Qwen3MoeForCausalLM",
    .hf_model_type = "qwen3_moe",
    .gguf_name = "qwen3moe",
    .hf_defaults = {.num_kv_heads = 4, .max_position = 32768, .sliding_window = 4096},
    .window = WindowRule::kUpperLayers,
    .attention_bias_key = true,
    .qk_norm = true,
    .layers = qwen3_moe_family::Layers,
};

}  // namespace tactus::compute::arch
