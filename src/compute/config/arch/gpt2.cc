// GPT-2, and so the shape of GPT-3: learned positions, LayerNorm, transposed matrices with q, k and v in one.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace gpt2_family {

constexpr TensorSource kQkv{"transformer.h.{}.attn.c_attn.weight", TensorSource::kFusedTransposed};
constexpr TensorSource kQkvBias{"transformer.h.{}.attn.c_attn.bias", TensorSource::kFused};
constexpr std::array<std::string_view, 2> kIgnored = {".attn.bias", ".attn.masked_bias"};
constexpr TensorNames kHfNames = [] {
  TensorNames names = TensorNames{}.With({
      {Role::kEmbedding, "transformer.wte.weight"},
      {Role::kPositions, "transformer.wpe.weight"},
      {Role::kLmHead, "lm_head.weight"},
      {Role::kFinalNorm, "transformer.ln_f.weight"},
      {Role::kFinalNormBias, "transformer.ln_f.bias"},
      {Role::kAttentionNorm, "transformer.h.{}.ln_1.weight"},
      {Role::kAttentionNormBias, "transformer.h.{}.ln_1.bias"},
      {Role::kFeedForwardNorm, "transformer.h.{}.ln_2.weight"},
      {Role::kFeedForwardNormBias, "transformer.h.{}.ln_2.bias"},
      {Role::kQ, kQkv},
      {Role::kK, kQkv},
      {Role::kV, kQkv},
      {Role::kQBias, kQkvBias},
      {Role::kKBias, kQkvBias},
      {Role::kVBias, kQkvBias},
      {Role::kO, {"transformer.h.{}.attn.c_proj.weight", TensorSource::kTransposed}},
      {Role::kOBias, "transformer.h.{}.attn.c_proj.bias"},
      {Role::kUp, {"transformer.h.{}.mlp.c_fc.weight", TensorSource::kTransposed}},
      {Role::kUpBias, "transformer.h.{}.mlp.c_fc.bias"},
      {Role::kDown, {"transformer.h.{}.mlp.c_proj.weight", TensorSource::kTransposed}},
      {Role::kDownBias, "transformer.h.{}.mlp.c_proj.bias"},
  });
  names.ignored = kIgnored;
  names.optional_prefix = "transformer.";
  return names;
}();
constexpr TensorSource kGgufQkv{"blk.{}.attn_qkv.weight", TensorSource::kFused};
constexpr TensorSource kGgufQkvBias{"blk.{}.attn_qkv.bias", TensorSource::kFused};
constexpr TensorNames kGgufNames = kGgufTensorNames.With({
    {Role::kQ, kGgufQkv},
    {Role::kK, kGgufQkv},
    {Role::kV, kGgufQkv},
    {Role::kQBias, kGgufQkvBias},
    {Role::kKBias, kGgufQkvBias},
    {Role::kVBias, kGgufQkvBias},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& stated, ModelConfig* config) {
  constexpr FieldKey kInverse{"scale_attn_by_inverse_layer_idx"}, kScale{"scale_attn_weights"};
  if (fields.FlagOr(kInverse, false)) fields.Refuse(kInverse, "is true, which is not supported");
  if (!fields.FlagOr(kScale, true)) fields.Refuse(kScale, "is false, which is not supported");
  config->learned_positions = config->max_position;
  StatedShape shape = stated;
  shape.num_kv_heads = shape.num_heads;
  shape.qkv_bias = shape.o_bias = shape.mlp_bias = true;
  std::vector<Layer> layers = LayerNormLayers(shape, PlainOf(shape));
  for (Layer& layer : layers) std::get<AttentionBlock>(layer[0].block).rope = RopeChoice::kNone;
  return layers;
}

}  // namespace gpt2_family

extern constinit const Architecture gpt2 = {
    .name = "gpt2",
    .hf_class = "GPT2LMHeadModel",
    .hf_model_type = "gpt2",
    .gguf_name = "gpt2",
    .hf_defaults = {.max_position = 1024, .bos_id = 50256, .eos_id = 50256, .tied = true, .inner_factor = 4},
    .layers = gpt2_family::Layers,
    .hf_keys = {.hidden = "n_embd",
                .layers = "n_layer",
                .heads = "n_head",
                .inner = "n_inner",
                .max_position = "n_positions|n_ctx",
                .norm_eps = "layer_norm_epsilon",
                .activation = "activation_function"},
    .activation = Activation::kGeluTanh,
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
    .hf_names = &gpt2_family::kHfNames,
    .gguf_names = &gpt2_family::kGgufNames,
};

}  // namespace tactus::compute::arch
