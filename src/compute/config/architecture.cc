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

constinit const TensorNames kHfTensorNames = {
    .embedding = "model.embed_tokens.weight",
    .lm_head = "lm_head.weight",
    .final_norm = "model.norm.weight",
    .attn_norm = "model.layers.{}.input_layernorm.weight",
    .ffn_norm = "model.layers.{}.post_attention_layernorm.weight",
    .q_norm = "model.layers.{}.self_attn.q_norm.weight",
    .k_norm = "model.layers.{}.self_attn.k_norm.weight",
    .wq = "model.layers.{}.self_attn.q_proj.weight",
    .wk = "model.layers.{}.self_attn.k_proj.weight",
    .wv = "model.layers.{}.self_attn.v_proj.weight",
    .wo = "model.layers.{}.self_attn.o_proj.weight",
    .bq = "model.layers.{}.self_attn.q_proj.bias",
    .bk = "model.layers.{}.self_attn.k_proj.bias",
    .bv = "model.layers.{}.self_attn.v_proj.bias",
    .bo = "model.layers.{}.self_attn.o_proj.bias",
    .w_gate = "model.layers.{}.mlp.gate_proj.weight",
    .w_up = "model.layers.{}.mlp.up_proj.weight",
    .w_down = "model.layers.{}.mlp.down_proj.weight",
    .b_gate = "model.layers.{}.mlp.gate_proj.bias",
    .b_up = "model.layers.{}.mlp.up_proj.bias",
    .b_down = "model.layers.{}.mlp.down_proj.bias",
    .ignored = kHfIgnored,
};

constinit const TensorNames kGgufTensorNames = {
    .embedding = "token_embd.weight",
    .lm_head = "output.weight",
    .final_norm = "output_norm.weight",
    .attn_norm = "blk.{}.attn_norm.weight",
    .ffn_norm = "blk.{}.ffn_norm.weight",
    .q_norm = "blk.{}.attn_q_norm.weight",
    .k_norm = "blk.{}.attn_k_norm.weight",
    .wq = "blk.{}.attn_q.weight",
    .wk = "blk.{}.attn_k.weight",
    .wv = "blk.{}.attn_v.weight",
    .wo = "blk.{}.attn_output.weight",
    .bq = "blk.{}.attn_q.bias",
    .bk = "blk.{}.attn_k.bias",
    .bv = "blk.{}.attn_v.bias",
    .bo = "blk.{}.attn_output.bias",
    .w_gate = "blk.{}.ffn_gate.weight",
    .w_up = "blk.{}.ffn_up.weight",
    .w_down = "blk.{}.ffn_down.weight",
    .b_gate = "blk.{}.ffn_gate.bias",
    .b_up = "blk.{}.ffn_up.bias",
    .b_down = "blk.{}.ffn_down.bias",
    .ignored = kGgufIgnored,
};

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

std::string LayerTensorName(std::string_view pattern, int64_t layer) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  std::string name(pattern.substr(0, at));
  name += std::to_string(layer);
  name += pattern.substr(at + 2);
  return name;
}

}  // namespace tactus::compute
