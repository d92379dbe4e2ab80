#include "compute/convert/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

// The first layer with experts; the number of layers: none has.
size_t FirstSparse(const ModelConfig& c) {
  const auto sparse = [](const Layer& layer) { return ExpertsOf(layer) != nullptr; };
  return static_cast<size_t>(std::find_if(c.layers.begin(), c.layers.end(), sparse) - c.layers.begin());
}

void AddExperts(const ModelConfig& c, const Architecture& target, Json* json) {
  const size_t first = FirstSparse(c);
  if (first == c.layers.size()) return;
  const ExpertsBlock& e = *ExpertsOf(c.layers[first]);
  const HfMixtureKeys& keys = target.hf_mixture;
  (*json)[keys.experts] = e.experts;
  (*json)[keys.chosen] = e.router.chosen;
  (*json)[keys.inner != nullptr ? keys.inner : KeyName(target.hf_keys.inner)] = e.expert.inner;
  (*json)["norm_topk_prob"] = e.router.renormalise;
  if (keys.shared_inner != nullptr) (*json)[keys.shared_inner] = e.shared_inner;
  if (keys.used != nullptr) (*json)[keys.used] = true;
  if (keys.step != nullptr) (*json)[keys.step] = first + 1;
}

// What the descendants of DeepSeek-V3 state more.
void AddBiasedRouter(const ModelConfig& c, const HfMixtureKeys& keys, Json* json) {
  const size_t first = FirstSparse(c);
  if (first == c.layers.size() || !ExpertsOf(c.layers[first])->router.choice_bias) return;
  const ExpertsBlock& e = *ExpertsOf(c.layers[first]);
  (*json)[keys.dense] = first;
  (*json)[keys.shared] = e.shared_inner / e.expert.inner;
  if (e.router.score != RouterScore::kSigmoid) return;
  (*json)["routed_scaling_factor"] = Shortest(e.router.scale);
  (*json)["n_group"] = e.router.groups;
  (*json)["topk_group"] = e.router.chosen_groups;
}

// Keys of a few families.
void AddRareKeys(const ModelConfig& c, const HfKeys& keys, Json* json) {
  if (keys.lm_head_bias != nullptr) (*json)[keys.lm_head_bias] = c.lm_head_bias;
  if (keys.rotary_dim != nullptr && c.rope.rotary_dim > 0) (*json)[keys.rotary_dim] = c.rope.rotary_dim;
  if (keys.qk_norm != nullptr) (*json)[keys.qk_norm] = AttentionOf(c.layers[0])->qk_norm != QkNorm::kNone;
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
  if (target.hf_head_dim) (*json)["head_dim"] = attention.head_dim;
  AddExperts(c, target, json);
  AddRareKeys(c, keys, json);
  AddBiasedRouter(c, target.hf_mixture, json);
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

void AddRopeByType(const ModelConfig& c, Json* json) {
  const RopeConfig& local = c.local_rope.has_value() ? *c.local_rope : c.rope;
  (*json)["rope_parameters"] = {
      {"full_attention", ProportionalScaling(c.rope, FullAttentionOf(c).head_dim)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", Shortest(local.theta)}}}};
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

// The share of a head's dimensions that turn.
double RotaryPart(const ModelConfig& c) {
  const int64_t head_dim = AttentionOf(c.layers[0])->head_dim;
  return c.rope.rotary_dim > 0 ? static_cast<double>(c.rope.rotary_dim) / static_cast<double>(head_dim) : 1.0;
}

void AddRope(const ModelConfig& c, const HfKeys& keys, Json* json) {
  const RopeConfig& rope = c.rope;
  (*json)["rope_theta"] = Shortest(rope.theta);
  if (rope.rotary_dim > 0) (*json)["partial_rotary_factor"] = RotaryPart(c);
  if (!rope.frequency_factors.empty()) {
    (*json)["rope_scaling"] = Llama3Scaling(rope, AttentionOf(c.layers[0])->head_dim);
  } else if (rope.scaling == RopeScaling::kLinear) {
    // Files state the length before scaling, of which the context is a multiple.
    (*json)["rope_scaling"] = {{"rope_type", "linear"}, {"factor", Shortest(rope.factor)}};
    (*json)[KeyName(keys.max_position)] =
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
}

void AddWindows(const ModelConfig& c, const Architecture& target, Json* json) {
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

void AddField(const RecordedField& field, Json* json) {
  Json& to = (*json)[field.hf];
  std::visit(
      [&](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, float>) {
          to = Shortest(value);
        } else if constexpr (std::is_same_v<Value, double>) {
          to = IsFactor(field.gguf, value) ? Json(Shortest(static_cast<float>(value)))
                                           : Json(static_cast<int64_t>(value));
        } else {
          to = value;
        }
      },
      field.value);
}

void AddSettings(const FieldRecord& settings, Json* json) {
  for (const RecordedField& field : settings) {
    if (field.hf.find('.') == std::string::npos && !json->contains(field.hf)) AddField(field, json);
  }
}

// GGUF files state no scale of scores where the family derives it from the shape.
void AddQueryScalar(const ModelConfig& c, const char* key, Json* json) {
  const auto scale = static_cast<double>(AttentionOf(c.layers[0])->scale);
  (*json)[key] = std::llround(1.0 / (scale * scale));
}

}  // namespace

const Architecture& HfArchitectureOf(const ModelConfig& config) {
  const Architecture& own = *FindArchitecture(config.architecture);
  for (const Architecture* a : Architectures()) {
    const bool shares = !a->gguf_read_as.empty() && a->gguf_read_as == own.gguf_name;
    if (shares && a->is_of_gguf != nullptr && a->is_of_gguf(config)) return *a;
  }
  return own;
}

std::string ConfigText(const ModelConfig& c, const Architecture& target, const FieldRecord& settings, DType dtype,
                       const Json& quantization) {
  const HfKeys& keys = target.hf_keys;
  Json json = {{"architectures", {target.hf_class}}, {"model_type", target.hf_model_type}};
  AddShape(c, target, &json);
  if (!target.hf_rope_by_type) AddRope(c, keys, &json);
  AddWindows(c, target, &json);
  for (const RecordedField& field : target.own_fields(c)) {
    if (!field.hf.empty()) AddField(field, &json);
  }
  if (target.hf_rope_by_type) AddRopeByType(c, &json);
  AddSettings(settings, &json);
  if (keys.rotary_part != nullptr) json[keys.rotary_part] = RotaryPart(c);
  if (keys.rope_theta != nullptr) json[keys.rope_theta] = Shortest(c.rope.theta);
  if (keys.query_scalar != nullptr) AddQueryScalar(c, keys.query_scalar, &json);
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
