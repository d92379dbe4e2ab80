// ERNIE 4.5 MoE: softmax scores with a bias for the choice, shared experts, rotation of neighbouring pairs, and dense
// layers outside a range.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace ernie4_5_moe_family {

constexpr HfMixtureKeys kMixture{.experts = "moe_num_experts",
                                 .chosen = "moe_k",
                                 .dense = "moe_layer_start_index",
                                 .shared = "moe_num_shared_experts"};
constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kChoiceBias, {"model.layers.{}.mlp.moe_statics.e_score_correction_bias", TensorSource::kOneRow}},
});

std::vector<bool> SparseLayers(FamilyFields& fields, const StatedShape& shape) {
  const auto layers = static_cast<int64_t>(shape.window.size());
  const int64_t first = WholeNumber(fields, {kMixture.dense}, "leading_dense_block_count", 1);
  const int64_t interval =
      std::max<int64_t>(1, WholeNumber(fields, {"moe_layer_interval"}, "interleave_moe_layer_step", 1));
  constexpr FieldKey kLast{"moe_layer_end_index"};
  const double stated = fields.Number(kLast).value_or(-1.0);
  const int64_t last = stated < 0 ? layers - 1 : WholeOf(fields, kLast, stated, layers - 1);
  std::vector<bool> sparse = EveryLayer(shape);
  for (int64_t l = 0; l < layers; ++l) {
    sparse[static_cast<size_t>(l)] = (l + 1) % interval == 0 && l >= first && l <= last;
  }
  return sparse;
}

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  if (fields.FlagOr({"use_bias"}, false)) fields.Refuse({"use_bias"}, "is true; biases are not supported");
  config->rope.interleaved = true;
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 64, .chosen = 6, .inner = 1536});
  experts.router.choice_bias = true;
  experts.router.renormalise = true;
  SetSharedExperts(WholeNumber(fields, {kMixture.shared}, "expert_shared_count", 2), &experts);
  return WithExperts(PreNormLayers(fields, shape, config), experts, SparseLayers(fields, shape));
}

}  // namespace ernie4_5_moe_family

extern constinit const Architecture ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .hf_class = "Ernie4_5_MoeForCausalLM",
    .hf_model_type = "ernie4_5_moe",
    .gguf_name = "ernie4_5-moe",
    .hf_defaults = {.num_kv_heads = 4, .max_position = 131072, .bos_id = 1, .eos_id = 2, .tied = true},
    .layers = ernie4_5_moe_family::Layers,
    .hf_mixture = ernie4_5_moe_family::kMixture,
    .hf_norm_eps = 1e-5,
    .hf_names = &ernie4_5_moe_family::kHfNames,
};

}  // namespace tactus::compute::arch
