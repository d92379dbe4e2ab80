// MiniMax M2: norms of q and k over their full width, rotation of a part of each head, sigmoid scores with a bias.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace minimax_m2_family {

constexpr HfKeys kHfKeys{.rotary_dim = "rotary_dim"};

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 256, .chosen = 8});
  SetSigmoidRouter(fields, true, &experts);
  experts.router.renormalise = true;
  const int64_t turning = WholeNumber(fields, {kHfKeys.rotary_dim}, nullptr, 0);
  if (turning > 0) config->rope.rotary_dim = static_cast<int32_t>(turning);
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).qk_norm = QkNorm::kWidth;
  return WithExperts(std::move(layers), experts, EveryLayer(shape));
}

}  // namespace minimax_m2_family

extern constinit const Architecture minimax_m2 = {
    .name = "minimax_m2",
    .hf_class = "MiniMaxM2ForCausalLM",
    .hf_model_type = "minimax_m2",
    .gguf_name = "minimax-m2",
    .hf_defaults = {.num_kv_heads = 8, .head_dim = 128, .max_position = 196608, .bos_id = 200034, .eos_id = 200020},
    .layers = minimax_m2_family::Layers,
    .hf_keys = minimax_m2_family::kHfKeys,
    .hf_mixture = {.experts = "num_local_experts", .inner = nullptr},
    .hf_names = &kMixtralHfNames,
};

}  // namespace tactus::compute::arch
