#include "compute/config/architecture.h"

#include <array>

namespace tactus::compute::arch {
#define TACTUS_ARCHITECTURE(name) extern const Architecture name;
#include "compute/config/architectures.def"
#undef TACTUS_ARCHITECTURE
}  // namespace tactus::compute::arch

namespace tactus::compute {

namespace {

constexpr std::array<std::string_view, 1> kHfIgnored = {".rotary_emb.inv_freq"};
constexpr std::array<std::string_view, 1> kGgufIgnored = {
    "rope_freqs.weight"};  // read as RopeConfig::frequency_factors

template <class Match>
const Architecture* FindIf(Match match) {
  for (const Architecture* a : Architectures()) {
    if (match(*a)) return a;
  }
  return nullptr;
}

template <class Name>
std::string Join(Name name) {
  std::string text;
  for (const Architecture* a : Architectures()) {
    if (name(*a).empty()) continue;
    if (!text.empty()) text += ", ";
    text += name(*a);
  }
  return text;
}

}  // namespace

constexpr TensorNames kNoNames{};

constinit const TensorNames kHfTensorNames = [] {
  TensorNames names = kNoNames.With({
      {Role::kEmbedding, "model.embed_tokens.weight"},
      {Role::kLmHead, "lm_head.weight"},
      {Role::kFinalNorm, "model.norm.weight"},
      {Role::kAttentionNorm, "model.layers.{}.input_layernorm.weight"},
      {Role::kFeedForwardNorm, "model.layers.{}.post_attention_layernorm.weight"},
      {Role::kQNorm, "model.layers.{}.self_attn.q_norm.weight"},
      {Role::kKNorm, "model.layers.{}.self_attn.k_norm.weight"},
      {Role::kQ, "model.layers.{}.self_attn.q_proj.weight"},
      {Role::kK, "model.layers.{}.self_attn.k_proj.weight"},
      {Role::kV, "model.layers.{}.self_attn.v_proj.weight"},
      {Role::kO, "model.layers.{}.self_attn.o_proj.weight"},
      {Role::kQBias, "model.layers.{}.self_attn.q_proj.bias"},
      {Role::kKBias, "model.layers.{}.self_attn.k_proj.bias"},
      {Role::kVBias, "model.layers.{}.self_attn.v_proj.bias"},
      {Role::kOBias, "model.layers.{}.self_attn.o_proj.bias"},
      {Role::kGate, "model.layers.{}.mlp.gate_proj.weight"},
      {Role::kUp, "model.layers.{}.mlp.up_proj.weight"},
      {Role::kDown, "model.layers.{}.mlp.down_proj.weight"},
      {Role::kGateBias, "model.layers.{}.mlp.gate_proj.bias"},
      {Role::kUpBias, "model.layers.{}.mlp.up_proj.bias"},
      {Role::kDownBias, "model.layers.{}.mlp.down_proj.bias"},
  });
  names.ignored = kHfIgnored;
  return names;
}();

constinit const TensorNames kGgufTensorNames = [] {
  TensorNames names = kNoNames.With({
      {Role::kEmbedding, "token_embd.weight"},
      {Role::kLmHead, "output.weight"},
      {Role::kFinalNorm, "output_norm.weight"},
      {Role::kAttentionNorm, "blk.{}.attn_norm.weight"},
      {Role::kFeedForwardNorm, "blk.{}.ffn_norm.weight"},
      {Role::kQNorm, "blk.{}.attn_q_norm.weight"},
      {Role::kKNorm, "blk.{}.attn_k_norm.weight"},
      {Role::kQ, "blk.{}.attn_q.weight"},
      {Role::kK, "blk.{}.attn_k.weight"},
      {Role::kV, "blk.{}.attn_v.weight"},
      {Role::kO, "blk.{}.attn_output.weight"},
      {Role::kQBias, "blk.{}.attn_q.bias"},
      {Role::kKBias, "blk.{}.attn_k.bias"},
      {Role::kVBias, "blk.{}.attn_v.bias"},
      {Role::kOBias, "blk.{}.attn_output.bias"},
      {Role::kGate, "blk.{}.ffn_gate.weight"},
      {Role::kUp, "blk.{}.ffn_up.weight"},
      {Role::kDown, "blk.{}.ffn_down.weight"},
      {Role::kGateBias, "blk.{}.ffn_gate.bias"},
      {Role::kUpBias, "blk.{}.ffn_up.bias"},
      {Role::kDownBias, "blk.{}.ffn_down.bias"},
  });
  names.ignored = kGgufIgnored;
  return names;
}();

std::span<const Architecture* const> Architectures() {
  static constexpr const Architecture* kRows[] = {
#define TACTUS_ARCHITECTURE(name) &arch::name,
#include "compute/config/architectures.def"
#undef TACTUS_ARCHITECTURE
  };
  return kRows;
}

const Architecture* FindArchitecture(std::string_view name) {
  return FindIf([&](const Architecture& a) { return a.name == name; });
}
const Architecture* FindHfArchitecture(std::string_view hf_class) {
  return FindIf([&](const Architecture& a) { return a.hf_class == hf_class; });
}
const Architecture* FindHfArchitectureByType(std::string_view hf_model_type) {
  return FindIf([&](const Architecture& a) { return a.hf_model_type == hf_model_type; });
}
const Architecture* FindGgufArchitecture(std::string_view gguf_name) {
  if (gguf_name.empty()) return nullptr;
  return FindIf([&](const Architecture& a) { return a.gguf_name == gguf_name; });
}
std::string KnownHfClasses() {
  return Join([](const Architecture& a) { return a.hf_class; });
}
std::string KnownGgufNames() {
  return Join([](const Architecture& a) { return a.gguf_name; });
}

std::string TensorSource::Name(int64_t layer) const {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  std::string name(pattern.substr(0, at));
  name += std::to_string(layer);
  name += pattern.substr(at + 2);
  return name;
}

Status MakeLayers(const Architecture& architecture, const StatedShape& shape, ModelConfig* config) {
  TACTUS_RETURN_IF_ERROR(ValidateShape(shape));
  config->layers = architecture.layers(shape);
  config->final_norm = RmsNormOf(Role::kFinalNorm, shape.norm_eps);
  return ValidateConfig(*config);
}

std::vector<Layer> PreNormLayers(const StatedShape& s) {
  std::vector<Layer> layers;
  for (const int32_t window : s.window) {
    AttentionBlock attention;
    attention.heads = s.num_heads;
    attention.kv_heads = s.num_kv_heads;
    attention.head_dim = s.head_dim;
    attention.window = window;
    attention.qkv_bias = s.qkv_bias;
    attention.o_bias = s.o_bias;
    attention.qk_norm = s.qk_norm ? QkNorm::kHeads : QkNorm::kNone;
    attention.norm_eps = s.norm_eps;
    layers.push_back(
        {{RmsNormOf(Role::kAttentionNorm, s.norm_eps), attention},
         {RmsNormOf(Role::kFeedForwardNorm, s.norm_eps), GatedFeedForwardBlock{s.intermediate_size, s.mlp_bias}}});
  }
  return layers;
}

}  // namespace tactus::compute
