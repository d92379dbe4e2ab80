// StarCoder2: LayerNorm, a plain feed-forward block, biases everywhere, a window.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace starcoder2_family {

constexpr TensorNames kHfNames = kHfTensorNames.With({{Role::kUp, "model.layers.{}.mlp.c_fc.weight"},
                                                      {Role::kUpBias, "model.layers.{}.mlp.c_fc.bias"},
                                                      {Role::kDown, "model.layers.{}.mlp.c_proj.weight"},
                                                      {Role::kDownBias, "model.layers.{}.mlp.c_proj.bias"}});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& stated, ModelConfig*) {
  StatedShape shape = stated;
  if (!fields.gguf()) shape.qkv_bias = shape.o_bias = shape.mlp_bias = fields.FlagOr({"use_bias"}, true);
  return LayerNormLayers(shape, PlainOf(shape));
}

}  // namespace starcoder2_family

extern constinit const Architecture starcoder2 = {
    .name = "starcoder2",
    .hf_class = "Starcoder2ForCausalLM",
    .hf_model_type = "starcoder2",
    .gguf_name = "starcoder2",
    .hf_defaults = {.num_kv_heads = 2, .max_position = 4096, .bos_id = 50256, .eos_id = 50256, .tied = true},
    .window = WindowRule::kEveryLayer,
    .layers = starcoder2_family::Layers,
    .hf_keys = {.norm_eps = "norm_epsilon"},
    .activation = Activation::kGeluTanh,
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
    .hf_names = &starcoder2_family::kHfNames,
};

}  // namespace tactus::compute::arch
