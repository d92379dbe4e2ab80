// StableLM: LayerNorm, partial rotation, and in some models attention and feed-forward side by side.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace stablelm_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config) {
  constexpr FieldKey kQkNorm{"qk_layernorm"};
  if (fields.FlagOr(kQkNorm, false))
    fields.Refuse(kQkNorm, "is true, which is not supported (norms with weights per head)");
  if (!fields.gguf() && config->rope.rotary_dim == 0 && !fields.Number({"partial_rotary_factor"}).has_value() &&
      !fields.Number({"rope_parameters.partial_rotary_factor"}).has_value()) {
    config->rope.rotary_dim = static_cast<int32_t>(shape.head_dim / 4);  // transformers' default
  }
  const bool parallel = fields.FlagOr({"use_parallel_residual", "use_parallel_residual"}, false);
  return LayerNormLayers(shape, GatedOf(shape), {.parallel = parallel, .one_norm = parallel});
}

}  // namespace stablelm_family

extern constinit const Architecture stablelm = {
    .name = "stablelm",
    .hf_class = "StableLmForCausalLM",
    .hf_model_type = "stablelm",
    .gguf_name = "stablelm",
    .hf_defaults = {.max_position = 4096, .bos_id = 0, .eos_id = 0},
    .qkv_bias_key = "use_qkv_bias",
    .layers = stablelm_family::Layers,
    .hf_keys = {.norm_eps = "layer_norm_eps"},
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
};

}  // namespace tactus::compute::arch
