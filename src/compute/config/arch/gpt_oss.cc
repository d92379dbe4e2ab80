// gpt-oss: attention sinks, a window in every other layer, biases everywhere, and experts with a clamped SwiGLU, of
// which the chosen share their softmax.
#include "compute/config/mixtures.h"

namespace tactus::compute::arch {
namespace gpt_oss_family {

constexpr TensorSource::Form kAlternating = TensorSource::kFusedInHeads;
constexpr TensorSource::Form kAlternatingTransposed = TensorSource::kFusedInHeadsTransposed;
constexpr TensorSource kHfGateUp =
    TensorSource::Stacked("model.layers.{}.mlp.experts.gate_up_proj", kAlternatingTransposed);
constexpr TensorSource kHfGateUpBias =
    TensorSource::Stacked("model.layers.{}.mlp.experts.gate_up_proj_bias", kAlternating);
constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kRouter, "model.layers.{}.mlp.router.weight"},
    {Role::kRouterBias, "model.layers.{}.mlp.router.bias"},
    {Role::kExpertGate, kHfGateUp},
    {Role::kExpertUp, kHfGateUp},
    {Role::kExpertDown, TensorSource::Stacked("model.layers.{}.mlp.experts.down_proj", TensorSource::kTransposed)},
    {Role::kExpertGateBias, kHfGateUpBias},
    {Role::kExpertUpBias, kHfGateUpBias},
    {Role::kExpertDownBias, TensorSource::Stacked("model.layers.{}.mlp.experts.down_proj_bias")},
});
constexpr TensorNames kGgufNames = kGgufTensorNames.With({
    {Role::kFeedForwardNorm, "blk.{}.post_attention_norm.weight"},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  const FieldKey alpha{"swiglu_alpha"}, limit{"swiglu_limit"};
  if (fields.NumberOr(alpha, 1.702) != 1.702f) fields.Refuse(alpha, "is not 1.702, the only one that is supported");
  if (fields.NumberOr(limit, 7.0) != 7.0f) fields.Refuse(limit, "is not 7, the only one that is supported");
  if (fields.gguf()) config->rope.truncate = false;  // as the published configuration says and GGUF files do not
  ExpertsBlock experts = ExpertsFrom(fields, shape, {.experts = 128, .chosen = 4});
  experts.router.score = RouterScore::kChosenSoftmax;
  experts.router.bias = true;
  experts.expert.bias = true;
  experts.expert.activation = Activation::kClampedSwiglu;
  std::vector<Layer> layers = PreNormLayers(fields, shape, config);
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).sinks = true;
  SetWindows(fields, WindowOr(fields, 128), 2, &layers);
  return WithExperts(std::move(layers), experts, EveryLayer(shape));
}

}  // namespace gpt_oss_family

extern constinit const Architecture gpt_oss = {
    .name = "gpt_oss",
    .hf_class = "GptOssForCausalLM",
    .hf_model_type = "gpt_oss",
    .gguf_name = "gpt-oss",
    .hf_defaults = {.num_kv_heads = 8, .head_dim = 64, .max_position = 131072},
    .attention_bias_key = true,
    .layers = gpt_oss_family::Layers,
    .hf_mixture = {.experts = "num_local_experts", .inner = nullptr},
    .hf_norm_eps = 1e-5,
    .hf_names = &gpt_oss_family::kHfNames,
    .gguf_names = &gpt_oss_family::kGgufNames,
};

}  // namespace tactus::compute::arch
