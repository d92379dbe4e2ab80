// Gemma: Llama with GELU, 1 + w as norm weights and an embedding times sqrt(hidden size); head_dim is its own number.
#include "compute/config/architecture.h"

#include <cmath>

namespace tactus::compute::arch {
namespace gemma_family {

constexpr TensorNames kHfNames = kHfTensorNames.With({
    {Role::kFinalNorm, {"model.norm.weight", TensorSource::kMinusOne}},
    {Role::kAttentionNorm, {"model.layers.{}.input_layernorm.weight", TensorSource::kMinusOne}},
    {Role::kFeedForwardNorm, {"model.layers.{}.post_attention_layernorm.weight", TensorSource::kMinusOne}},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
  return PreNormLayers(fields, shape, config);
}

}  // namespace gemma_family

extern constinit const Architecture gemma = {
    .name = "gemma",
    .hf_class = "GemmaForCausalLM",
    .hf_model_type = "gemma",
    .gguf_name = "gemma",
    .hf_defaults = {.num_kv_heads = 16, .head_dim = 256, .max_position = 8192, .bos_id = 2, .eos_id = 1, .tied = true},
    .layers = gemma_family::Layers,
    // hidden_act of the first files says "gelu" and means its approximation.
    .hf_keys = {.activation = "hidden_activation"},
    .activation = Activation::kGeluTanh,
    .hf_names = &gemma_family::kHfNames,
};

}  // namespace tactus::compute::arch
