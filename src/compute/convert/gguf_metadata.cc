#include "compute/convert/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tactus::compute {
namespace {

struct FieldWriter {
  const std::string& key;
  GgufHeader* header;

  void operator()(std::nullptr_t) const {}
  void operator()(bool flag) const { header->Bool(key, flag); }
  void operator()(int64_t number) const { header->Uint32(key, number); }
  void operator()(float number) const { header->Float32(key, static_cast<double>(number)); }
  void operator()(double number) const {
    if (IsFactor(key, number)) return header->Float32(key, number);
    header->Uint32(key, static_cast<int64_t>(number));
  }
  void operator()(const std::string& text) const { header->Text(key, text); }
  void operator()(const std::vector<bool>& flags) const { header->Flags(key, flags); }
  void operator()(const std::vector<float>& numbers) const { header->Numbers(key, numbers); }
  void operator()(const std::vector<std::string>& texts) const { header->Texts(key, texts); }
  template <class Number>  // int64_t, or double as files have it
  void operator()(const std::vector<Number>& numbers) const {
    header->Numbers(key, std::vector<int32_t>(numbers.begin(), numbers.end()));
  }
};

void AddField(const std::string& key, const FieldValue& value, GgufHeader* header) {
  std::visit(FieldWriter{key, header}, value);
}

void AddExperts(const ModelConfig& config, const std::string& prefix, GgufHeader* header) {
  constexpr int64_t kSigmoid = 2;
  const auto sparse = [](const Layer& layer) { return ExpertsOf(layer) != nullptr; };
  const auto first = std::find_if(config.layers.begin(), config.layers.end(), sparse);
  if (first == config.layers.end()) return;
  const ExpertsBlock& experts = *ExpertsOf(*first);
  const RouterSpec& router = experts.router;
  const std::string expert = prefix + "expert_";
  header->Uint32(expert + "count", experts.experts);
  header->Uint32(expert + "used_count", router.chosen);
  header->Uint32(expert + "feed_forward_length", experts.expert.inner);
  if (experts.shared_inner > 0) header->Uint32(expert + "shared_feed_forward_length", experts.shared_inner);
  if (router.weighs_input) header->Uint32(prefix + "interleave_moe_layer_step", first - config.layers.begin() + 1);
  if (!router.choice_bias) return;  // the descendants of DeepSeek-V3 state more
  header->Uint32(prefix + "leading_dense_block_count", first - config.layers.begin());
  header->Uint32(expert + "shared_count", experts.shared_inner / experts.expert.inner);
  if (router.score != RouterScore::kSigmoid) return;
  header->Uint32(expert + "gating_func", kSigmoid);
  header->Bool(expert + "weights_norm", router.renormalise);
  header->Float32(expert + "weights_scale", static_cast<double>(router.scale));
  header->Uint32(expert + "group_count", router.groups);
  header->Uint32(expert + "group_used_count", router.chosen_groups);
}

// Every how manyth layer has no window; nullopt: not a pattern of this kind.
std::optional<int64_t> PeriodOf(const std::vector<int32_t>& windows) {
  for (int64_t period = 2; period <= static_cast<int64_t>(windows.size()) + 1; ++period) {
    bool fits = true;
    for (size_t l = 0; l < windows.size(); ++l) {
      fits &= (windows[l] > 0) == (static_cast<int64_t>(l + 1) % period != 0);
    }
    if (fits) return period;
  }
  return std::nullopt;
}

void AddWindows(const ModelConfig& config, const std::string& prefix, GgufHeader* header) {
  const std::vector<int32_t> windows = config.Windows();
  const int32_t widest = *std::max_element(windows.begin(), windows.end());
  if (widest == 0) return;
  header->Uint32(prefix + "attention.sliding_window", widest);
  if (header->Has(prefix + "attention.sliding_window_pattern")) return;
  if (std::find(windows.begin(), windows.end(), 0) == windows.end()) return;
  if (const auto period = PeriodOf(windows)) header->Uint32(prefix + "attention.sliding_window_pattern", *period);
}

void AddRope(const ModelConfig& config, const std::string& prefix, int64_t head_dim, GgufHeader* header) {
  const RopeConfig& rope = config.rope;
  header->Uint32(prefix + "rope.dimension_count", rope.rotary_dim > 0 ? rope.rotary_dim : head_dim);
  header->Float32(prefix + "rope.freq_base", static_cast<double>(rope.theta));
  if (config.local_rope.has_value())
    header->Float32(prefix + "rope.freq_base_swa", static_cast<double>(config.local_rope->theta));
  const std::string scaling = prefix + "rope.scaling.";
  const auto factor = static_cast<double>(rope.factor);
  if (rope.scaling == RopeScaling::kLinear) {
    header->Text(scaling + "type", "linear");
    header->Float32(scaling + "factor", factor);
  } else if (rope.scaling == RopeScaling::kYarn) {
    header->Text(scaling + "type", "yarn");
    header->Float32(scaling + "factor", factor);
    header->Uint32(scaling + "original_context_length", rope.original_max_position);
    if (rope.beta_fast != 32.0f) header->Float32(scaling + "yarn_beta_fast", static_cast<double>(rope.beta_fast));
    if (rope.beta_slow != 1.0f) header->Float32(scaling + "yarn_beta_slow", static_cast<double>(rope.beta_slow));
  } else if (rope.scaling == RopeScaling::kLongRope) {
    header->Uint32(scaling + "original_context_length", rope.original_max_position);
    header->Float32(scaling + "attn_factor", static_cast<double>(rope.attention_factor));
  }
}

void AddSettings(const FieldRecord& settings, const std::string& prefix, GgufHeader* header) {
  for (const RecordedField& field : settings) {
    const std::string key = prefix + field.gguf;
    if (header->Has(key) || field.gguf == "nextn_predict_layers") continue;  // such layers are not written
    AddField(key, field.value, header);
  }
}

void AddSampling(const StatedSampling& stated, GgufHeader* header) {
  const auto add = [header](const char* name, const std::optional<double>& value) {
    if (value) header->Float32(std::string("general.sampling.") + name, *value);
  };
  add("temp", stated.temperature);
  add("top_p", stated.top_p);
  add("min_p", stated.min_p);
  add("penalty_repeat", stated.repetition_penalty);
  if (stated.top_k) header->Int32("general.sampling.top_k", *stated.top_k);
}

}  // namespace

bool IsFactor(std::string_view key, double value) {
  for (const std::string_view end : {"scale", "softcapping", "freq_base", "freq_base_swa", "epsilon", "factor"}) {
    if (key.ends_with(end)) return true;
  }
  return std::floor(value) != value || value < 0;
}

Result<const Architecture*> GgufArchitectureOf(const Architecture& architecture) {
  if (!architecture.gguf_name.empty()) return &architecture;
  if (const Architecture* found = FindGgufArchitecture(architecture.gguf_read_as)) return found;
  return Unimplemented("models of the family " + std::string(architecture.name) +
                       " cannot be written as GGUF; there are " + KnownGgufNames());
}

void AddModelMetadata(const ModelDescription& d, const Architecture& target, const FieldRecord& settings,
                      GgufHeader* header) {
  const ModelConfig& c = d.config;
  const std::string prefix = std::string(target.gguf_name) + ".";
  const AttentionBlock& attention = FullAttentionOf(c);
  header->Text("general.architecture", target.gguf_name);
  header->Text("general.type", "model");
  header->Text("general.name", c.name);
  header->Uint32(prefix + "block_count", c.num_layers());
  header->Uint32(prefix + "context_length", c.max_position);
  header->Uint32(prefix + "embedding_length", c.hidden_size);
  AddField(prefix + "feed_forward_length", ByLayer(InnerSizes(c)), header);
  header->Uint32(prefix + "attention.head_count", attention.heads);
  std::vector<int64_t> kv_heads;
  kv_heads.reserve(c.layers.size());
  for (const Layer& layer : c.layers) kv_heads.push_back(AttentionOf(layer)->kv_heads);
  AddField(prefix + "attention.head_count_kv", ByLayer(kv_heads), header);
  header->Uint32(prefix + "attention.key_length", attention.head_dim);
  header->Uint32(prefix + "attention.value_length", attention.head_dim);
  const auto eps = static_cast<double>(c.final_norm.eps);
  if (!target.rms_norm) header->Float32(prefix + "attention.layer_norm_epsilon", eps);
  if (target.rms_norm || target.gguf_rms_eps) header->Float32(prefix + "attention.layer_norm_rms_epsilon", eps);
  header->Uint32(prefix + "vocab_size", c.vocab_size);
  for (const RecordedField& field : target.own_fields(c)) {
    if (!field.gguf.empty()) AddField(prefix + field.gguf, field.value, header);
  }
  AddWindows(c, prefix, header);
  AddRope(c, prefix, attention.head_dim, header);
  AddExperts(c, prefix, header);
  AddSettings(settings, prefix, header);
  AddSampling(c.generation_defaults, header);
}

void AddTokenizerMetadata(const GgufTokenizerFields& t, const ModelDescription& d, GgufHeader* header) {
  const std::vector<TokenId>& stops = d.config.stop_ids;
  if (!t.model.empty()) {
    header->Text("tokenizer.ggml.model", t.model);
    header->Text("tokenizer.ggml.pre", t.pre.empty() ? "default" : t.pre);
    header->Texts("tokenizer.ggml.tokens", t.tokens);
    if (!t.scores.empty()) header->Numbers("tokenizer.ggml.scores", t.scores);
    header->Numbers("tokenizer.ggml.token_type", t.types);
    if (t.model == "gpt2") header->Texts("tokenizer.ggml.merges", t.merges);
    if (t.unk >= 0) header->Uint32("tokenizer.ggml.unknown_token_id", t.unk);
    header->Bool("tokenizer.ggml.add_bos_token", t.add_bos);
    header->Bool("tokenizer.ggml.add_eos_token", t.add_eos);
    if (t.model == "llama" || t.model == "t5") header->Bool("tokenizer.ggml.add_space_prefix", t.add_space_prefix);
    if (t.model == "t5") header->Bool("tokenizer.ggml.remove_extra_whitespaces", t.remove_extra_whitespaces);
    if (!t.precompiled_charsmap.empty())
      header->ByteList("tokenizer.ggml.precompiled_charsmap", t.precompiled_charsmap);
    if (t.lowercase) header->Bool("tokenizer.ggml.normalizer.lowercase", *t.lowercase);
    if (t.strip_accents) header->Bool("tokenizer.ggml.normalizer.strip_accents", *t.strip_accents);
    if (t.sep >= 0) header->Uint32("tokenizer.ggml.seperator_token_id", t.sep);  // as GGUF spells it
  }
  const int64_t bos = t.bos >= 0 ? t.bos : d.config.bos_id;
  if (bos >= 0) header->Uint32("tokenizer.ggml.bos_token_id", bos);
  // The tokeniser's own end comes first; readers know two names for further ones.
  std::vector<int64_t> ends(stops.begin(), stops.end());
  const auto own = std::find(ends.begin(), ends.end(), t.eos);
  if (own != ends.end()) std::rotate(ends.begin(), own, own + 1);
  constexpr const char* kEnds[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                   "tokenizer.ggml.eom_token_id"};
  for (size_t i = 0; i < std::min(ends.size(), std::size(kEnds)); ++i) header->Uint32(kEnds[i], ends[i]);
  if (!d.chat_template.empty()) header->Text("tokenizer.chat_template", d.chat_template);
  if (!d.tool_use_template.empty()) header->Text("tokenizer.chat_template.tool_use", d.tool_use_template);
}

int64_t FileTypeOf(DType dtype) {
  constexpr std::pair<DType, int64_t> kTypes[] = {{DType::kF32, 0},   {DType::kF16, 1},   {DType::kQ4_0, 2},
                                                  {DType::kQ4_1, 3},  {DType::kQ8_0, 7},  {DType::kQ5_0, 8},
                                                  {DType::kQ5_1, 9},  {DType::kQ4_K, 14}, {DType::kQ5_K, 16},
                                                  {DType::kQ6_K, 18}, {DType::kBF16, 32}};
  for (const auto& [known, type] : kTypes) {
    if (known == dtype) return type;
  }
  return 1024;  // GGUF's "guessed"
}

RopeConfig GgufRope(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const bool proportional = rope.scaling == RopeScaling::kProportional;
  if (rope.scaling != RopeScaling::kLlama3 && !proportional) return rope;
  const int64_t head_dim = FullAttentionOf(config).head_dim;
  RopeConfig plain;
  plain.theta = rope.theta, plain.rotary_dim = rope.rotary_dim, plain.interleaved = rope.interleaved;
  plain.frequency_factors = proportional ? ProportionalFactors(rope, head_dim) : Llama3Factors(rope, head_dim);
  return plain;
}

std::vector<float> ProportionalFactors(const RopeConfig& rope, int64_t head_dim) {
  constexpr float kStill = 1e30f;  // as llama.cpp's converter has it
  const auto turning = static_cast<size_t>(rope.proportion * static_cast<float>(head_dim)) / 2;
  std::vector<float> factors(static_cast<size_t>(head_dim / 2), kStill);
  std::fill_n(factors.begin(), std::min(turning, factors.size()), rope.factor);
  return factors;
}

std::vector<std::pair<std::string, std::vector<float>>> FactorTensors(const RopeConfig& rope) {
  std::vector<std::pair<std::string, std::vector<float>>> tensors;
  for (const auto& [name, factors] : {std::pair{"rope_freqs.weight", &rope.frequency_factors},
                                      std::pair{"rope_factors_long.weight", &rope.long_factors},
                                      std::pair{"rope_factors_short.weight", &rope.short_factors}}) {
    if (!factors->empty()) tensors.emplace_back(name, *factors);
  }
  return tensors;
}

std::vector<float> Llama3Factors(const RopeConfig& rope, int64_t head_dim) {
  const int64_t dim = rope.rotary_dim > 0 ? rope.rotary_dim : head_dim;
  const auto original = static_cast<double>(rope.original_max_position);
  const auto low = static_cast<double>(rope.low_freq_factor), high = static_cast<double>(rope.high_freq_factor);
  const auto factor = static_cast<double>(rope.factor);
  std::vector<float> factors;
  for (int64_t i = 0; i < dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(dim);
    const double wavelength = 2.0 * 3.14159265358979323846 * std::pow(static_cast<double>(rope.theta), exponent);
    const double smooth = std::clamp((original / wavelength - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
  }
  return factors;
}

}  // namespace tactus::compute
