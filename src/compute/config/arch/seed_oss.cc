// Seed-OSS: Llama with biases on q, k and v and, where the file says so, on the output.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace seed_oss_family {

// The norm before the feed-forward block, under the name of one after attention.
constexpr TensorNames kGgufNames =
    kGgufTensorNames.With({{Role::kFeedForwardNorm, "blk.{}.post_attention_norm.weight"}});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& stated, ModelConfig* config) {
  StatedShape shape = stated;
  if (!fields.gguf()) {
    shape.qkv_bias = fields.FlagOr({"attention_bias"}, true);
    shape.o_bias = fields.FlagOr({"attention_out_bias"}, false);
  }
  return PreNormLayers(fields, shape, config);
}

}  // namespace seed_oss_family

extern constinit const Architecture seed_oss = {
    .name = "seed_oss",
    .hf_class = "SeedOssForCausalLM",
    .hf_model_type = "seed_oss",
    .gguf_name = "seed_oss",
    .hf_defaults = {.num_kv_heads = 8, .head_dim = 128, .max_position = 524288},
    .mlp_bias_key = true,
    .layers = seed_oss_family::Layers,
    .gguf_names = &seed_oss_family::kGgufNames,
};

}  // namespace tactus::compute::arch
