// Hunyuan, its mixtures of experts (A13B): the dense models' attention, and renormalised softmax scores beside a shared
// expert.
#include <fmt/format.h>

#include "compute/config/arch/hunyuan.h"
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace hunyuan_moe_family {

constexpr HfMixtureKeys kMixture{.chosen = "moe_topk", .inner = nullptr};
constexpr TensorNames kHfNames = kHunyuanHfNames.With({
    {Role::kRouter, "model.layers.{}.mlp.gate.wg.weight"},
    {Role::kSharedGate, "model.layers.{}.mlp.shared_mlp.gate_proj.weight"},
    {Role::kSharedUp, "model.layers.{}.mlp.shared_mlp.up_proj.weight"},
    {Role::kSharedDown, "model.layers.{}.mlp.shared_mlp.down_proj.weight"},
});

// A number for all layers, or one for each. As transformers has it, 1 where a file states none.
std::vector<int64_t> ByLayer(FamilyFields& fields, FieldKey key, size_t layers) {
  constexpr double kMost = (1 << 24) - 1;  // ValidateConfig has the limits
  std::vector<double> numbers = fields.Numbers(key);
  if (numbers.empty()) numbers = {1.0};
  if (numbers.size() != 1 && !HasOneForEach(fields, key, numbers.size(), layers)) numbers = {1.0};
  std::vector<int64_t> all(layers);
  for (size_t l = 0; l < layers; ++l) {
    const double n = numbers[numbers.size() == 1 ? 0 : l];
    const bool possible = n >= 1.0 && n <= kMost;
    if (!possible) fields.Refuse(key, fmt::format("holds {}; possible is 1 to 16777215", n));
    all[l] = possible ? static_cast<int64_t>(n) : 1;
  }
  return all;
}

// Refuses a file that states another number than `expected`, for any layer.
void Expect(FamilyFields& fields, FieldKey key, int64_t expected) {
  for (const double n : fields.Numbers(key)) {
    if (n == static_cast<double>(expected)) continue;
    fields.Refuse(key, fmt::format("holds {}; only {} is supported", n, expected));
    return;
  }
}

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  std::vector<Layer> layers = HunyuanLayers(fields, shape, config);
  const std::vector<int64_t> experts = ByLayer(fields, {kMixture.experts, "expert_count"}, layers.size());
  const std::vector<int64_t> chosen = ByLayer(fields, {kMixture.chosen, "expert_used_count"}, layers.size());
  // transformers gives the experts and the shared one the width of config.json's dense blocks.
  Expect(fields, {"moe_intermediate_size"}, shape.intermediate_size);
  Expect(fields, {"num_shared_expert"}, 1);
  for (size_t l = 0; l < layers.size(); ++l) {
    ExpertsBlock block{.experts = experts[l], .expert = GatedOf(shape)};
    block.router.chosen = static_cast<int32_t>(chosen[l]);
    block.router.renormalise = true;
    block.expert.inner = WholeNumber(fields, {nullptr}, "expert_feed_forward_length", shape.intermediate_size);
    block.shared_inner = WholeNumber(fields, {nullptr}, "expert_shared_feed_forward_length", block.expert.inner);
    layers[l][1].block = block;
  }
  return layers;
}

}  // namespace hunyuan_moe_family

extern constinit const Architecture hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .hf_class = "HunYuanMoEV1ForCausalLM",
    .hf_model_type = "hunyuan_v1_moe",
    .gguf_name = "hunyuan-moe",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2},
    .attention_bias_key = true,
    .qk_norm = true,
    .layers = hunyuan_moe_family::Layers,
    .hf_mixture = hunyuan_moe_family::kMixture,
    .hf_norm_eps = 1e-5,
    .hf_names = &hunyuan_moe_family::kHfNames,
};

}  // namespace tactus::compute::arch
