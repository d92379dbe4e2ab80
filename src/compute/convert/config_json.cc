#include "compute/convert/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/json.h"
#include "base/json_text.h"
#include "compute/config/hf_config.h"
#include "compute/convert/gguf_metadata.h"

namespace tactus::compute {
namespace {

const char* TypeName(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

// The first of the names "a|b".
std::string KeyName(const char* key) {
  const std::string_view names = key;
  return std::string(names.substr(0, names.find('|')));
}

// The shortest number that rounds to this f32, as files have it.
double Shortest(float value) {
  return json_text::ParseSortedJson(fmt::format("{}", value)).value().get<double>();
}

std::vector<double> ShortestOf(const std::vector<float>& values) {
  std::vector<double> out;
  out.reserve(values.size());
  for (const float value : values) out.push_back(Shortest(value));
  return out;
}

const char* NameOf(Activation activation) {
  switch (activation) {
    case Activation::kGeluErf:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_pytorch_tanh";
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu2:
      return "relu2";
    default:
      return "silu";
  }
}

// The names of a mixture's numbers. `inner`: the width of an expert.
struct MixtureKeys {
  const char *experts = "num_experts", *chosen = "num_experts_per_tok", *inner = "moe_intermediate_size";
};

MixtureKeys MixtureKeysOf(std::string_view family) {
  if (family == "glm4_moe" || family == "dots1") return {.experts = "n_routed_experts"};
  if (family == "ernie4_5_moe") return {.experts = "moe_num_experts", .chosen = "moe_k"};
  if (family == "hunyuan_v1_moe") return {.chosen = "moe_topk", .inner = "intermediate_size"};
  if (family == "gemma4_text") return {.chosen = "top_k_experts"};
  if (family == "qwen2_moe" || family == "qwen3_moe") return {};
  return {.experts = family == "olmoe" ? "num_experts" : "num_local_experts", .inner = "intermediate_size"};
}

void AddExperts(const ModelConfig& c, std::string_view family, Json* json) {
  const auto sparse = [](const Layer& layer) { return ExpertsOf(layer) != nullptr; };
  const auto first = std::find_if(c.layers.begin(), c.layers.end(), sparse);
  if (first == c.layers.end()) return;
  const ExpertsBlock& e = *ExpertsOf(*first);
  const MixtureKeys keys = MixtureKeysOf(family);
  (*json)[keys.experts] = e.experts;
  (*json)[keys.chosen] = e.router.chosen;
  (*json)[keys.inner] = e.expert.inner;
  (*json)["norm_topk_prob"] = e.router.renormalise;
  if (family == "qwen2_moe") (*json)["shared_expert_intermediate_size"] = e.shared_inner;
  if (family == "granitemoeshared") (*json)["shared_intermediate_size"] = e.shared_inner;
  if (family == "gemma4_text") (*json)["enable_moe_block"] = true;
  if (family == "llama4_text") (*json)["interleave_moe_layer_step"] = first - c.layers.begin() + 1;
  if (family == "phimoe") (*json)["lm_head_bias"] = c.lm_head_bias;
  if (family == "minimax_m2" && c.rope.rotary_dim > 0) (*json)["rotary_dim"] = c.rope.rotary_dim;
  if (family == "glm4_moe") (*json)["use_qk_norm"] = AttentionOf(c.layers[0])->qk_norm != QkNorm::kNone;
  if (!e.router.choice_bias) return;
  const bool ernie = family == "ernie4_5_moe";
  (*json)[ernie ? "moe_layer_start_index" : "first_k_dense_replace"] = first - c.layers.begin();
  (*json)[ernie ? "moe_num_shared_experts" : "n_shared_experts"] = e.shared_inner / e.expert.inner;
  if (e.router.score != RouterScore::kSigmoid) return;
  (*json)["routed_scaling_factor"] = Shortest(e.router.scale);
  (*json)["n_group"] = e.router.groups;
  (*json)["topk_group"] = e.router.chosen_groups;
}

void AddShape(const ModelConfig& c, const Architecture& target, Json* json) {
  const HfKeys& keys = target.hf_keys;
  const AttentionBlock& attention = *AttentionOf(c.layers[0]);
  int64_t inner = 0;  // of experts where there are no other blocks
  bool mlp_bias = false;
  for (const ModelTensor& t : c.Tensors()) {
    if (t.role == Role::kDown || (t.role == Role::kExpertDown && inner == 0)) inner = t.cols;
    mlp_bias |= t.role == Role::kDownBias;
  }
  (*json)[KeyName(keys.hidden)] = c.hidden_size;
  (*json)[KeyName(keys.layers)] = c.num_layers();
  (*json)[KeyName(keys.heads)] = attention.heads;
  (*json)[KeyName(keys.kv_heads)] = attention.kv_heads;
  (*json)[KeyName(keys.inner)] = inner;
  (*json)[KeyName(keys.max_position)] = c.max_position;
  (*json)[KeyName(keys.norm_eps)] = Shortest(c.final_norm.eps);
  if (target.name != "falcon") (*json)["head_dim"] = attention.head_dim;  // transformers refuses Falcon's
  AddExperts(c, target.name, json);
  (*json)["vocab_size"] = c.vocab_size;
  (*json)["tie_word_embeddings"] = c.tie_embeddings;
  if (target.attention_bias_key) (*json)["attention_bias"] = attention.o_bias;
  if (target.qkv_bias_key != nullptr) (*json)[target.qkv_bias_key] = attention.qkv_bias;
  if (target.mlp_bias_key) (*json)["mlp_bias"] = mlp_bias;
  for (const LayerBlock& b : c.layers[0]) {
    if (const auto* gated = std::get_if<GatedFeedForwardBlock>(&b.block))
      (*json)[KeyName(keys.activation)] = NameOf(gated->activation);
    if (const auto* plain = std::get_if<FeedForwardBlock>(&b.block))
      (*json)[KeyName(keys.activation)] = NameOf(plain->activation);
  }
}

// A number for all layers, or one for each where they differ.
Json ByLayer(const std::vector<int64_t>& numbers) {
  const bool same = std::adjacent_find(numbers.begin(), numbers.end(), std::not_equal_to<>()) == numbers.end();
  return same ? Json(numbers[0]) : Json(numbers);
}

// Which layers of Llama 4 have chunks, which have no rotary positions, and how the queries of the latter grow.
void AddLlama4Layers(const ModelConfig& c, Json* json) {
  int32_t chunk = 0;
  (*json)["layer_types"] = SortedJson::array(), (*json)["no_rope_layers"] = SortedJson::array();
  (*json)["use_qk_norm"] = false;
  for (const Layer& layer : c.layers) {
    const AttentionBlock& a = *AttentionOf(layer);
    chunk = std::max(chunk, a.chunk);
    (*json)["layer_types"].push_back(a.chunk > 0 ? "chunked_attention" : "full_attention");
    (*json)["no_rope_layers"].push_back(a.rope == RopeChoice::kNone ? 0 : 1);
    if (a.qk_norm != QkNorm::kNone) (*json)["use_qk_norm"] = true;
    if (a.rope != RopeChoice::kNone) continue;
    (*json)["attn_temperature_tuning"] = a.query_length > 0;
    (*json)["attn_scale"] = Shortest(a.query_beta);
    (*json)["floor_scale"] = a.query_length;
  }
  (*json)["attention_chunk_size"] = chunk > 0 ? Json(chunk) : Json(nullptr);
  (*json)["intermediate_size_mlp"] = InnerSizes(c)[0];
}

// What Gemma 3n and 4 have in common.
void AddGemmaLayers(const ModelConfig& c, Json* json) {
  int64_t sharing = 0;
  for (const Layer& layer : c.layers) sharing += AttentionOf(layer)->stores_kv() ? 0 : 1;
  (*json)["num_kv_shared_layers"] = sharing;
  (*json)["hidden_size_per_layer_input"] = c.layer_inputs.size;
  if (c.layer_inputs.size > 0) (*json)["vocab_size_per_layer_input"] = c.layer_inputs.rows;
  (*json)["intermediate_size"] = ByLayer(InnerSizes(c));
}

void AddGemma3nLayers(const ModelConfig& c, Json* json) {
  AddGemmaLayers(c, json);
  (*json)["altup_num_inputs"] = c.streams;
  (*json)["activation_sparsity_pattern"] = SortedJson::array();
  for (const Layer& layer : c.layers) {
    for (const LayerBlock& b : layer) {
      if (const auto* low_rank = std::get_if<LowRankBlock>(&b.block)) (*json)["laurel_rank"] = low_rank->rank;
      const auto* gated = std::get_if<GatedFeedForwardBlock>(&b.block);
      if (gated == nullptr) continue;
      // The share of a normal distribution's values below the cutoff.
      const double share = 0.5 * std::erfc(-static_cast<double>(gated->cutoff) / std::sqrt(2.0));
      (*json)["activation_sparsity_pattern"].push_back(share);
    }
  }
}

// Frequencies of which the first turn and the others do not; null: the factors are others.
Json ProportionalScaling(const RopeConfig& rope, int64_t head_dim) {
  const std::vector<float>& given = rope.frequency_factors;
  const auto turning = std::count(given.begin(), given.end(), 1.0f);
  RopeConfig scaled;
  scaled.proportion = static_cast<float>(2 * turning) / static_cast<float>(head_dim);
  if (!given.empty() && ProportionalFactors(scaled, head_dim) != given) return nullptr;
  return {{"rope_type", "proportional"},
          {"rope_theta", Shortest(rope.theta)},
          {"partial_rotary_factor", given.empty() ? 1.0 : Shortest(scaled.proportion)}};
}

// Heads of layers with a window, and of those without one.
void AddGemma4Layers(const ModelConfig& c, Json* json) {
  AddGemmaLayers(c, json);
  const AttentionBlock& full = FullAttentionOf(c);
  const AttentionBlock* local = &full;
  bool k_is_v = false;
  for (const Layer& layer : c.layers) {
    if (AttentionOf(layer)->window > 0) local = AttentionOf(layer);
    k_is_v |= AttentionOf(layer)->k_is_v;
  }
  const std::vector<int64_t> inner = InnerSizes(c);
  (*json)["intermediate_size"] = inner[0];
  (*json)["use_double_wide_mlp"] = inner.back() != inner[0];
  (*json)["head_dim"] = local->head_dim, (*json)["global_head_dim"] = full.head_dim;
  (*json)["num_key_value_heads"] = local->kv_heads;
  (*json)["attention_k_eq_v"] = k_is_v;
  if (k_is_v) (*json)["num_global_key_value_heads"] = full.kv_heads;
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling", "partial_rotary_factor"})
    json->erase(key);
  (*json)["rope_parameters"] = {
      {"full_attention", ProportionalScaling(c.rope, full.head_dim)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", Shortest(c.local_rope->theta)}}}};
}

// The llama3 scaling of which these are the factors, under its usual limits of 1 and 4 turns; null: there is none. The
// largest factor is the scaling's, and one between it and 1 shows the original length.
Json Llama3Scaling(const RopeConfig& rope, int64_t head_dim) {
  const std::vector<float>& given = rope.frequency_factors;
  RopeConfig scaled = rope;
  scaled.low_freq_factor = 1.0f, scaled.high_freq_factor = 4.0f;
  scaled.factor = *std::max_element(given.begin(), given.end());
  scaled.original_max_position = 8192;
  const double slowest = 1.0 / static_cast<double>(scaled.factor);
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] <= 1.0f || given[i] >= 0.9999f * scaled.factor) continue;  // ends may be rounded
    const double smooth = (1.0 / static_cast<double>(given[i]) - slowest) / (1.0 - slowest);
    const double exponent = static_cast<double>(i) / static_cast<double>(given.size());
    const double wavelength = 2.0 * 3.14159265358979323846 * std::pow(static_cast<double>(rope.theta), exponent);
    scaled.original_max_position = std::llround(wavelength * (1.0 + 3.0 * smooth));
  }
  const std::vector<float> factors = Llama3Factors(scaled, head_dim);
  const bool same = std::equal(factors.begin(), factors.end(), given.begin(), given.end(),
                               [](float a, float b) { return std::abs(a - b) < 1e-4f * a; });
  if (!same) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", Shortest(scaled.factor)},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", scaled.original_max_position}};
}

void AddPositions(const ModelConfig& c, const Architecture& target, Json* json) {
  const AttentionBlock& attention = *AttentionOf(c.layers[0]);
  const RopeConfig& rope = c.rope;
  (*json)["rope_theta"] = Shortest(rope.theta);
  if (rope.rotary_dim > 0)
    (*json)["partial_rotary_factor"] = static_cast<double>(rope.rotary_dim) / static_cast<double>(attention.head_dim);
  if (!rope.frequency_factors.empty()) {
    (*json)["rope_scaling"] = Llama3Scaling(rope, attention.head_dim);
  } else if (rope.scaling == RopeScaling::kLinear) {
    // Files state the length before scaling, of which the context is a multiple.
    (*json)["rope_scaling"] = {{"rope_type", "linear"}, {"factor", Shortest(rope.factor)}};
    (*json)[KeyName(target.hf_keys.max_position)] =
        static_cast<int64_t>(static_cast<double>(c.max_position) / static_cast<double>(rope.factor));
  } else if (rope.scaling == RopeScaling::kYarn) {
    (*json)["rope_scaling"] = {{"rope_type", "yarn"},
                               {"factor", Shortest(rope.factor)},
                               {"original_max_position_embeddings", rope.original_max_position},
                               {"beta_fast", Shortest(rope.beta_fast)},
                               {"beta_slow", Shortest(rope.beta_slow)}};
    if (!rope.truncate) (*json)["rope_scaling"]["truncate"] = false;
  } else if (rope.scaling == RopeScaling::kLongRope) {
    (*json)["original_max_position_embeddings"] = rope.original_max_position;
    (*json)["rope_scaling"] = {{"rope_type", "longrope"},
                               {"short_factor", ShortestOf(rope.short_factors)},
                               {"long_factor", ShortestOf(rope.long_factors)},
                               {"attention_factor", Shortest(rope.attention_factor)}};
  }
  if (c.local_rope.has_value()) (*json)["rope_local_base_freq"] = Shortest(c.local_rope->theta);
  const std::vector<int32_t> windows = c.Windows();
  const int32_t widest = *std::max_element(windows.begin(), windows.end());
  if (widest == 0) {
    if (target.window == WindowRule::kEveryLayer) (*json)["sliding_window"] = nullptr;
    return;
  }
  (*json)["sliding_window"] = widest;
  if (target.window == WindowRule::kEveryLayer) return;
  (*json)["layer_types"] = SortedJson::array();
  for (const int32_t window : windows)
    (*json)["layer_types"].push_back(window > 0 ? "sliding_attention" : "full_attention");
  if (target.window == WindowRule::kUpperLayers) (*json)["use_sliding_window"] = true;
}

void AddSettings(const FieldRecord& settings, Json* json) {
  for (const RecordedField& field : settings) {
    if (field.hf.find('.') != std::string::npos || json->contains(field.hf)) continue;
    std::visit(
        [&](const auto& value) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
            (*json)[field.hf] = IsFactor(field.gguf, value) ? Json(Shortest(static_cast<float>(value)))
                                                            : Json(static_cast<int64_t>(value));
          } else {
            (*json)[field.hf] = value;
          }
        },
        field.value);
  }
}

}  // namespace

const Architecture& HfArchitectureOf(const ModelConfig& config) {
  const std::vector<int32_t> windows = config.Windows();
  const bool any = std::any_of(windows.begin(), windows.end(), [](int32_t w) { return w > 0; });
  const ExpertsBlock* const experts = config.layers.empty() ? nullptr : ExpertsOf(config.layers[0]);
  std::string_view name = config.architecture;
  if (name == "llama" && experts != nullptr) {
    name = "mixtral";
  } else if (name == "granitemoe" && experts != nullptr && experts->shared_inner > 0) {
    name = "granitemoeshared";
  } else if (any && (name == "llama" || name == "olmo2")) {
    name = name == "llama" ? "mistral" : "olmo3";
  }
  return *FindArchitecture(name);
}

std::string ConfigText(const ModelConfig& c, const Architecture& target, const FieldRecord& settings, DType dtype,
                       const Json& quantization) {
  Json json = {{"architectures", {target.hf_class}}, {"model_type", target.hf_model_type}};
  AddShape(c, target, &json);
  AddPositions(c, target, &json);
  if (target.name == "llama4_text") AddLlama4Layers(c, &json);
  if (target.name == "gemma3n_text") AddGemma3nLayers(c, &json);
  if (target.name == "gemma4_text") AddGemma4Layers(c, &json);
  AddSettings(settings, &json);
  if (target.name == "gpt_neox") {
    const auto part = static_cast<double>(c.rope.rotary_dim) / static_cast<double>(AttentionOf(c.layers[0])->head_dim);
    json["rotary_pct"] = c.rope.rotary_dim > 0 ? part : 1.0;
    json["rotary_emb_base"] = Shortest(c.rope.theta);
  }
  if (target.name == "falcon") json["new_decoder_architecture"] = AttentionOf(c.layers[0])->kv_heads > 1;
  // GGUF files state no scale of scores where the family derives it from the shape.
  if (target.name == "gemma2" || target.name == "gemma3_text") {
    const auto scale = static_cast<double>(AttentionOf(c.layers[0])->scale);
    json["query_pre_attn_scalar"] = std::llround(1.0 / (scale * scale));
  }
  json["bos_token_id"] = c.bos_id >= 0 ? Json(c.bos_id) : Json(nullptr);
  json["eos_token_id"] = c.stop_ids.empty()       ? Json(nullptr)
                         : c.stop_ids.size() == 1 ? Json(c.stop_ids[0])
                                                  : Json(c.stop_ids);
  json["pad_token_id"] = nullptr;  // a class's default may be beyond the vocabulary
  json["dtype"] = TypeName(dtype);
  if (!quantization.is_null()) json["quantization_config"] = quantization;
  return json_text::JsonText(json, 2) + "\n";
}

std::string GenerationConfigText(const ModelConfig& config) {
  const StatedSampling& stated = config.generation_defaults;
  if (!stated.any()) return {};
  Json json = {{"do_sample", true}};
  const auto add = [&json](const char* name, const std::optional<double>& value) {
    if (value) json[name] = Shortest(static_cast<float>(*value));
  };
  add("temperature", stated.temperature);
  add("top_p", stated.top_p);
  add("min_p", stated.min_p);
  add("repetition_penalty", stated.repetition_penalty);
  if (stated.top_k) json["top_k"] = *stated.top_k;
  if (stated.temperature == 0.0) json = {{"do_sample", false}};
  if (!config.stop_ids.empty()) json["eos_token_id"] = config.stop_ids;
  return json_text::JsonText(json, 2) + "\n";
}

std::string ConfigWithType(std::string_view text, const Architecture& architecture, DType dtype,
                           const Json& quantization) {
  Json json = json_text::ParseJson(text).value();
  if (json.contains("text_config") && json["text_config"].is_object()) {
    Json part = json["text_config"];
    for (const char* key : kWholeModelKeys) {
      if (json.contains(key) && !json[key].is_null()) part[key] = json[key];
    }
    json = std::move(part);
    json["architectures"] = {architecture.hf_class};
  }
  json[json.contains("torch_dtype") ? "torch_dtype" : "dtype"] = TypeName(dtype);
  json.erase("compression_config");
  json.erase("quantization_config");
  if (!quantization.is_null()) json["quantization_config"] = quantization;
  return json_text::JsonText(json, 2) + "\n";
}

}  // namespace tactus::compute
