#include "compute/config/architecture.h"

#include <array>

#include <fmt/format.h>

namespace tactus::compute::arch {
#define TACTUS_ARCHITECTURE(name) extern const Architecture name;
#include "compute/config/architectures.def"
#undef TACTUS_ARCHITECTURE
}  // namespace tactus::compute::arch

namespace tactus::compute {

namespace {

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

Status MakeLayers(const Architecture& architecture, FamilyFields& fields, const StatedShape& shape,
                  ModelConfig* config) {
  TACTUS_RETURN_IF_ERROR(ValidateShape(shape));
  config->final_norm = architecture.rms_norm ? RmsNormOf(Role::kFinalNorm, shape.norm_eps)
                                             : LayerNormOf(Role::kFinalNorm, shape.norm_eps, Role::kFinalNormBias);
  config->layers = architecture.layers(fields, shape, config);
  TACTUS_RETURN_IF_ERROR(fields.status());
  return ValidateConfig(*config);
}

AttentionBlock AttentionOf(const StatedShape& s, size_t layer) {
  AttentionBlock attention;
  attention.heads = s.num_heads;
  attention.kv_heads = s.layer_kv_heads.empty() ? s.num_kv_heads : s.layer_kv_heads[layer];
  attention.head_dim = s.head_dim;
  attention.window = s.window[layer];
  attention.qkv_bias = s.qkv_bias;
  attention.o_bias = s.o_bias;
  attention.qk_norm = s.qk_norm ? QkNorm::kHeads : QkNorm::kNone;
  attention.norm_eps = s.norm_eps;
  return attention;
}

GatedFeedForwardBlock GatedOf(const StatedShape& s, size_t layer) {
  return {s.layer_inner.empty() ? s.intermediate_size : s.layer_inner[layer], s.mlp_bias, s.activation};
}

FeedForwardBlock PlainOf(const StatedShape& s) {
  return {s.intermediate_size, s.mlp_bias, s.activation};
}

std::vector<Layer> PreNormLayers(FamilyFields&, const StatedShape& s, ModelConfig*) {
  std::vector<Layer> layers;
  layers.reserve(s.window.size());
  for (size_t l = 0; l < s.window.size(); ++l) {
    layers.push_back({{.norm = RmsNormOf(Role::kAttentionNorm, s.norm_eps), .block = AttentionOf(s, l)},
                      {.norm = RmsNormOf(Role::kFeedForwardNorm, s.norm_eps), .block = GatedOf(s, l)}});
  }
  return layers;
}

std::vector<Layer> PrePostNormLayers(const StatedShape& s) {
  std::vector<Layer> layers = PostNormLayers(s);
  for (Layer& layer : layers) {
    layer[0].norm = RmsNormOf(Role::kAttentionNorm, s.norm_eps);
    layer[1].norm = RmsNormOf(Role::kFeedForwardNorm, s.norm_eps);
  }
  return layers;
}

std::vector<Layer> PostNormLayers(const StatedShape& s) {
  std::vector<Layer> layers;
  layers.reserve(s.window.size());
  for (size_t l = 0; l < s.window.size(); ++l) {
    layers.push_back({{.block = AttentionOf(s, l), .post = RmsNormOf(Role::kAttentionPostNorm, s.norm_eps)},
                      {.block = GatedOf(s, l), .post = RmsNormOf(Role::kFeedForwardPostNorm, s.norm_eps)}});
  }
  return layers;
}

std::vector<Layer> LayerNormLayers(const StatedShape& s, const Block& feed_forward, LayerNormOptions options) {
  const NormSpec first =
      LayerNormOf(Role::kAttentionNorm, s.norm_eps, options.bias ? Role::kAttentionNormBias : Role::kNone);
  const NormSpec second = options.one_norm ? first
                                           : LayerNormOf(Role::kFeedForwardNorm, s.norm_eps,
                                                         options.bias ? Role::kFeedForwardNormBias : Role::kNone);
  std::vector<Layer> layers;
  layers.reserve(s.window.size());
  for (size_t l = 0; l < s.window.size(); ++l) {
    layers.push_back({{.norm = first, .block = AttentionOf(s, l)},
                      {.norm = second, .block = feed_forward, .parallel = options.parallel}});
  }
  return layers;
}

int64_t WholeNumber(FamilyFields& fields, std::initializer_list<const char*> hf, const char* gguf, int64_t fallback) {
  for (const char* name : hf) {
    const FieldKey key{name, gguf};
    const std::optional<double> value = fields.Number(key);
    if (value.has_value()) return WholeOf(fields, key, *value, fallback);
  }
  return fallback;
}

int64_t WholeOf(FamilyFields& fields, FieldKey key, double value, int64_t fallback) {
  if (value >= 0 && value < double{1 << 24} && value == static_cast<double>(static_cast<int64_t>(value))) {
    return static_cast<int64_t>(value);
  }
  fields.Refuse(key, fmt::format("is {}; possible are whole numbers from 0 to 16777215", value));
  return fallback;
}

std::string EntriesText(size_t entries, size_t layers) {
  return fmt::format("has {} entries for {} layers", entries, layers);
}

bool HasOneForEach(FamilyFields& fields, FieldKey key, size_t entries, size_t layers) {
  if (entries != layers) fields.Refuse(key, EntriesText(entries, layers));
  return entries == layers;
}

std::optional<Activation> FindActivation(std::string_view name) {
  static constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"silu", Activation::kSilu},          {"swish", Activation::kSilu},
      {"gelu", Activation::kGeluErf},       {"gelu_python", Activation::kGeluErf},
      {"gelu_new", Activation::kGeluTanh},  {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh}, {"gelu_accurate", Activation::kGeluTanh},
      {"relu", Activation::kRelu},          {"relu2", Activation::kRelu2},
  };
  for (const auto& [known, activation] : kNames) {
    if (known == name) return activation;
  }
  return std::nullopt;
}

void SetWindows(FamilyFields& fields, int32_t window, int64_t period, std::vector<Layer>* layers) {
  constexpr FieldKey kTypes{"layer_types"};
  const std::vector<std::string> types = fields.Texts(kTypes);
  if (!types.empty() && !HasOneForEach(fields, kTypes, types.size(), layers->size())) return;
  const std::vector<double> flags = fields.Numbers(kWindowPattern);
  for (size_t l = 0; l < layers->size(); ++l) {
    const bool sliding = flags.size() == layers->size() ? flags[l] != 0.0
                         : types.empty()                ? period > 0 && static_cast<int64_t>(l + 1) % period != 0
                                                        : types[l] == "sliding_attention";
    if (!types.empty() && !sliding && types[l] != "full_attention") {
      fields.Refuse(kTypes, "holds '" + types[l] + "', which is not supported");
    }
    for (LayerBlock& b : (*layers)[l]) {
      if (auto* attention = std::get_if<AttentionBlock>(&b.block)) attention->window = sliding ? window : 0;
    }
  }
}

}  // namespace tactus::compute
