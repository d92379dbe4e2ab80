// BLOOM: ALiBi, LayerNorm also of the embedding, q, k and v fused head by head, biases everywhere.
#include "compute/config/architecture.h"

namespace tactus::compute::arch {
namespace bloom_family {

constexpr TensorSource kQkv{"transformer.h.{}.self_attention.query_key_value.weight", TensorSource::kFusedInHeads};
constexpr TensorSource kQkvBias{"transformer.h.{}.self_attention.query_key_value.bias", TensorSource::kFusedInHeads};
constexpr TensorNames kHfNames = [] {
  TensorNames names = TensorNames{}.With({
      {Role::kEmbedding, "transformer.word_embeddings.weight"},
      {Role::kEmbeddingNorm, "transformer.word_embeddings_layernorm.weight"},
      {Role::kEmbeddingNormBias, "transformer.word_embeddings_layernorm.bias"},
      {Role::kLmHead, "lm_head.weight"},
      {Role::kFinalNorm, "transformer.ln_f.weight"},
      {Role::kFinalNormBias, "transformer.ln_f.bias"},
      {Role::kAttentionNorm, "transformer.h.{}.input_layernorm.weight"},
      {Role::kAttentionNormBias, "transformer.h.{}.input_layernorm.bias"},
      {Role::kFeedForwardNorm, "transformer.h.{}.post_attention_layernorm.weight"},
      {Role::kFeedForwardNormBias, "transformer.h.{}.post_attention_layernorm.bias"},
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
  constexpr FieldKey kPost{"apply_residual_connection_post_layernorm"};
  if (fields.FlagOr(kPost, false)) fields.Refuse(kPost, "is true, which is not supported");
  config->embedding_norm = LayerNormOf(Role::kEmbeddingNorm, stated.norm_eps, Role::kEmbeddingNormBias);
  StatedShape shape = stated;
  shape.num_kv_heads = shape.num_heads;
  shape.qkv_bias = shape.o_bias = shape.mlp_bias = true;
  std::vector<Layer> layers = LayerNormLayers(shape, PlainOf(shape));
  for (Layer& layer : layers) {
    auto& attention = std::get<AttentionBlock>(layer[0].block);
    attention.alibi = 1.0f;
    attention.rope = RopeChoice::kNone;
  }
  return layers;
}

}  // namespace bloom_family

extern constinit const Architecture bloom = {
    .name = "bloom",
    .hf_class = "BloomForCausalLM",
    .hf_model_type = "bloom",
    .gguf_name = "bloom",
    .hf_defaults = {.max_position = 2048, .bos_id = 1, .eos_id = 2, .tied = true, .inner_factor = 4},
    .layers = bloom_family::Layers,
    .hf_keys = {.hidden = "hidden_size|n_embed",
                .layers = "n_layer|num_hidden_layers",
                .heads = "n_head|num_attention_heads",
                .max_position = "seq_length",
                .norm_eps = "layer_norm_epsilon"},
    .activation = Activation::kGeluTanh,
    .hf_norm_eps = 1e-5,
    .rms_norm = false,
    .hf_names = &bloom_family::kHfNames,
    .gguf_names = &bloom_family::kGgufNames,
};

}  // namespace tactus::compute::arch
