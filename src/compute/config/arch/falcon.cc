// Falcon: LayerNorm, attention and feed-forward side by side, mostly no biases. 7B: one KV head and one norm; 40B and
// 180B (the "new decoder"): grouped KV heads and a norm for each block; RW: ALiBi, one block after the other.
#include "compute/config/architecture.h"

#include <cmath>

namespace tactus::compute::arch {
namespace falcon_family {

constexpr FieldKey kNewDecoder{"new_decoder_architecture"};
constexpr TensorSource kQkv{"transformer.h.{}.self_attention.query_key_value.weight", TensorSource::kFusedInHeads};
constexpr TensorSource kQkvBias{"transformer.h.{}.self_attention.query_key_value.bias", TensorSource::kFusedInHeads};
constexpr TensorNames kHfNames = TensorNames{}.With({
    {Role::kEmbedding, "transformer.word_embeddings.weight"},
    {Role::kLmHead, "lm_head.weight"},
    {Role::kFinalNorm, "transformer.ln_f.weight"},
    {Role::kFinalNormBias, "transformer.ln_f.bias"},
    {Role::kAttentionNorm,
     {"transformer.h.{}.ln_attn.weight", TensorSource::kWhole, "transformer.h.{}.input_layernorm.weight"}},
    {Role::kAttentionNormBias,
     {"transformer.h.{}.ln_attn.bias", TensorSource::kWhole, "transformer.h.{}.input_layernorm.bias"}},
    {Role::kFeedForwardNorm,
     {"transformer.h.{}.ln_mlp.weight", TensorSource::kWhole, "transformer.h.{}.post_attention_layernorm.weight"}},
    {Role::kFeedForwardNormBias,
     {"transformer.h.{}.ln_mlp.bias", TensorSource::kWhole, "transformer.h.{}.post_attention_layernorm.bias"}},
    {Role::kQ, kQkv},
    {Role::kK, kQkv},
    {Role::kV, kQkv},
    {Role::kQBias, kQkvBias},
    {Role::kKBias, kQkvBias},
    {Role::kVBias, kQkvBias},
    {Role::kO, "transformer.h.{}.self_attention.dense.weight"},
    {Role::kOBias, "transformer.h.{}.self_attention.dense.bias"},
    {Role::kUp, "transformer.h.{}.mlp.dense_h_to_4h.weight"},
    {Role::kUpBias, "transformer.h.{}.mlp.dense_h_to_4h.bias"},
    {Role::kDown, "transformer.h.{}.mlp.dense_4h_to_h.weight"},
    {Role::kDownBias, "transformer.h.{}.mlp.dense_4h_to_h.bias"},
});
constexpr TensorSource kGgufQkv{"blk.{}.attn_qkv.weight", TensorSource::kFused};
constexpr TensorSource kGgufQkvBias{"blk.{}.attn_qkv.bias", TensorSource::kFused};
constexpr TensorNames kGgufNames = kGgufTensorNames.With({
    {Role::kAttentionNorm, {"blk.{}.attn_norm_2.weight", TensorSource::kWhole, "blk.{}.attn_norm.weight"}},
    {Role::kAttentionNormBias, {"blk.{}.attn_norm_2.bias", TensorSource::kWhole, "blk.{}.attn_norm.bias"}},
    {Role::kFeedForwardNorm, "blk.{}.attn_norm.weight"},
    {Role::kFeedForwardNormBias, "blk.{}.attn_norm.bias"},
    {Role::kQ, kGgufQkv},
    {Role::kK, kGgufQkv},
    {Role::kV, kGgufQkv},
    {Role::kQBias, kGgufQkvBias},
    {Role::kKBias, kGgufQkvBias},
    {Role::kVBias, kGgufQkvBias},
});

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& stated, ModelConfig*) {
  StatedShape shape = stated;
  bool grouped = shape.num_kv_heads > 1, parallel = true, one_norm = !grouped, alibi = false;
  if (!fields.gguf()) {
    grouped = fields.FlagOr(kNewDecoder, false);
    if (!grouped) shape.num_kv_heads = fields.FlagOr({"multi_query"}, true) ? 1 : shape.num_heads;
    parallel = grouped || fields.FlagOr({"parallel_attn"}, true);
    one_norm = parallel && fields.Number({"num_ln_in_parallel_attn"}).value_or(grouped ? 2.0 : 1.0) < 2.0;
    alibi = fields.FlagOr({"alibi"}, false);
    shape.qkv_bias = shape.o_bias = shape.mlp_bias = fields.FlagOr({"bias"}, false);
  }
  std::vector<Layer> layers = LayerNormLayers(shape, PlainOf(shape), {.parallel = parallel, .one_norm = one_norm});
  for (Layer& layer : layers) {
    auto& attention = std::get<AttentionBlock>(layer[0].block);
    if (!alibi) continue;
    attention.alibi = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));  // added before the scores are scaled
    attention.rope = RopeChoice::kNone;
  }
  return layers;
}

FieldRecord OwnFields(const ModelConfig& config) {
  return {{kNewDecoder, AttentionOf(config.layers[0])->kv_heads > 1}};
}

}  // namespace falcon_family

extern constinit const Architecture falcon = {
    .name = "falcon",
    .hf_class = "FalconForCausalLM",
    .hf_model_type = "falcon",
    .gguf_name = "falcon",
    .hf_defaults = {.max_position = 2048, .bos_id = 11, .eos_id = 11, .tied = true, .inner_factor = 4},
    .layers = falcon_family::Layers,
    .own_fields = falcon_family::OwnFields,
    .hf_keys = {.kv_heads = "num_kv_heads",
                .inner = "ffn_hidden_size",
                .norm_eps = "layer_norm_epsilon",
                .activation = "activation"},
    .hf_head_dim = false,  // transformers refuses it
    .activation = Activation::kGeluErf,
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
    .hf_names = &falcon_family::kHfNames,
    .gguf_names = &falcon_family::kGgufNames,
};

}  // namespace tactus::compute::arch
