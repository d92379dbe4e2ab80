#include "compute/config/hf_config.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>

#include "base/json.h"
#include "base/printable.h"
#include "compute/config/architecture.h"
#include "compute/config/json_fields.h"
#include "compute/config/sampling_defaults.h"

namespace tactus::compute {
namespace {

// The text part of a model that also reads pictures, with what its configuration states for the whole; null: `object`
// describes a model of text.
std::shared_ptr<const SortedJson> TextPart(const SortedJson& object) {
  const auto found = object.find("text_config");
  if (found == object.end() || !found->is_object()) return nullptr;
  auto text = std::make_shared<SortedJson>(*found);
  text->erase("architectures");
  for (const char* key : kWholeModelKeys) {
    if (object.contains(key) && !object[key].is_null()) (*text)[key] = object[key];
  }
  return text;
}

Result<const Architecture*> ReadArchitecture(JsonFields& json) {
  const std::vector<std::string> classes = json.Strings("architectures");
  const std::string type = json.String("model_type").value_or("");
  TACTUS_RETURN_IF_ERROR(json.status());
  if (classes.size() > 1) {
    return Unimplemented(json.path() + ": 'architectures' lists " + std::to_string(classes.size()) +
                         " classes; one is possible");
  }
  const Architecture* a = classes.empty() ? FindHfArchitectureByType(type) : FindHfArchitecture(classes[0]);
  if (a != nullptr) return a;
  const std::string found = !classes.empty() ? "architecture '" + Printable(classes[0]) + "'"
                            : !type.empty()  ? "model_type '" + Printable(type) + "'"
                                             : "a file with neither 'architectures' nor 'model_type'";
  return Unimplemented(json.path() + ": " + found + " is not supported; supported are " + KnownHfClasses());
}

// The dimensions that turn; 0: all.
int32_t RotaryDim(int64_t head_dim, double part) {
  return part == 1.0 ? 0 : static_cast<int32_t>(static_cast<double>(head_dim) * part);
}

// The factor of cos and sin: 0.1 m ln(factor) + 1 (YaRN, equation 22).
double YarnScale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

Status ReadYarn(JsonFields& fields, int64_t max_position, RopeConfig* to) {
  RopeConfig& rope = *to;
  rope.original_max_position = fields.Int("original_max_position_embeddings").value_or(max_position);
  rope.beta_fast = static_cast<float>(fields.Float("beta_fast").value_or(32.0));
  rope.beta_slow = static_cast<float>(fields.Float("beta_slow").value_or(1.0));
  rope.truncate = fields.Bool("truncate").value_or(true);
  const std::optional<double> stated = fields.Float("attention_factor");
  const double m = fields.Float("mscale").value_or(0.0), all = fields.Float("mscale_all_dim").value_or(0.0);
  const double factor = static_cast<double>(rope.factor);
  rope.attention_factor = static_cast<float>(stated.has_value()       ? *stated
                                             : m != 0.0 && all != 0.0 ? YarnScale(factor, m) / YarnScale(factor, all)
                                                                      : YarnScale(factor, 1.0));
  return fields.status();
}

// Phi-3 states the original length beside "rope_scaling"; the factor is the model's length over it.
Status ReadLongRope(JsonFields& json, JsonFields& fields, int64_t max_position, RopeConfig* to) {
  RopeConfig& rope = *to;
  rope.scaling = RopeScaling::kLongRope;
  const std::optional<int64_t> inside = fields.Int("original_max_position_embeddings");
  rope.original_max_position =
      inside.has_value() ? *inside : json.Int("original_max_position_embeddings").value_or(max_position);
  for (const double f : fields.Floats("short_factor")) rope.short_factors.push_back(static_cast<float>(f));
  for (const double f : fields.Floats("long_factor")) rope.long_factors.push_back(static_cast<float>(f));
  const auto original = static_cast<double>(std::max<int64_t>(rope.original_max_position, 2));
  const double factor = fields.Float("factor").value_or(static_cast<double>(max_position) / original);
  const double scale = factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
  rope.attention_factor = static_cast<float>(fields.Float("attention_factor").value_or(scale));
  rope.factor = static_cast<float>(std::max(factor, 1.0));
  TACTUS_RETURN_IF_ERROR(json.status());
  return fields.status();
}

// Reads both spellings: "rope_theta" beside "rope_scaling": {"type" | "rope_type", ...}, and one "rope_parameters"
// object with all of it.
// One set of rotary positions. *max_position becomes the length after scaling.
Status ReadRopeObject(JsonFields& json, const SortedJson& object, const std::string& prefix, int64_t head_dim,
                      RopeConfig* to, int64_t* max_position) {
  RopeConfig& rope = *to;
  const bool newer = json.Has("rope_parameters");
  JsonFields fields(object, json.path(), prefix);
  rope.theta = static_cast<float>(fields.Float("rope_theta").value_or(rope.theta));
  const std::optional<double> part = fields.Float("partial_rotary_factor");
  if (part.has_value()) rope.rotary_dim = RotaryDim(head_dim, *part);
  const std::string type = fields.Has("rope_type") ? fields.String("rope_type").value_or("default")
                                                   : fields.String("type").value_or(newer ? "default" : "");
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (type == "default" || type == "mrope") return Status();  // the positions of text are alike in every section
  if (type == "proportional") {
    rope.scaling = RopeScaling::kProportional;
    rope.proportion = static_cast<float>(part.value_or(1.0));
    rope.rotary_dim = 0;
    rope.factor = static_cast<float>(fields.Float("factor").value_or(1.0));
    return fields.status();
  }
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else if (type == "longrope" || type == "su") {
    return ReadLongRope(json, fields, *max_position, &rope);
  } else {
    return Unimplemented(json.path() + ": RoPE scaling '" + Printable(type) + "' ('" + prefix +
                         "rope_type') is not supported; supported are default, linear, dynamic, llama3, yarn, "
                         "longrope and proportional");
  }
  if (!fields.Has("factor")) fields.Fail("factor", "is missing");
  rope.factor = static_cast<float>(fields.Float("factor").value_or(1.0));
  if (rope.scaling == RopeScaling::kLlama3) {
    for (const char* required : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (!fields.Has(required)) fields.Fail(required, "is missing");
    }
    rope.low_freq_factor = static_cast<float>(fields.Float("low_freq_factor").value_or(1.0));
    rope.high_freq_factor = static_cast<float>(fields.Float("high_freq_factor").value_or(4.0));
    rope.original_max_position = fields.Int("original_max_position_embeddings").value_or(0);
    return fields.status();
  }
  if (rope.scaling == RopeScaling::kYarn) return ReadYarn(fields, *max_position, &rope);
  // Linear and dynamic configurations state the length before scaling; the model's context is `factor` times that.
  if (rope.scaling == RopeScaling::kDynamic) rope.original_max_position = *max_position;
  if (rope.factor >= 1.0f && rope.factor <= 1e4f && *max_position > 0 && *max_position < (int64_t{1} << 40)) {
    *max_position = static_cast<int64_t>(static_cast<double>(*max_position) * static_cast<double>(rope.factor));
  }
  return fields.status();
}

Status ReadRope(JsonFields& json, int64_t head_dim, ModelConfig* c) {
  RopeConfig& rope = c->rope;
  rope.theta = static_cast<float>(json.Float("rope_theta").value_or(10000.0));
  rope.rotary_dim = RotaryDim(head_dim, json.Float("partial_rotary_factor").value_or(1.0));
  const std::string key = json.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const SortedJson* object = json.Object(key.c_str());
  TACTUS_RETURN_IF_ERROR(json.status());
  if (object == nullptr) return Status();
  // By the type of layer (Gemma 3, OLMo 3), or one for all.
  JsonFields by_type(*object, json.path(), key + ".");
  const SortedJson* const full = by_type.Has("full_attention") ? by_type.Object("full_attention") : nullptr;
  const SortedJson* const sliding = by_type.Has("sliding_attention") ? by_type.Object("sliding_attention") : nullptr;
  TACTUS_RETURN_IF_ERROR(by_type.status());
  if (full == nullptr && sliding == nullptr) {
    return ReadRopeObject(json, *object, key + ".", head_dim, &rope, &c->max_position);
  }
  int64_t unscaled = c->max_position;
  if (sliding != nullptr) {
    c->local_rope = rope;
    TACTUS_RETURN_IF_ERROR(
        ReadRopeObject(json, *sliding, key + ".sliding_attention.", head_dim, &*c->local_rope, &unscaled));
  }
  if (full == nullptr) return Status();
  return ReadRopeObject(json, *full, key + ".full_attention.", head_dim, &rope, &c->max_position);
}

Status ReadWindow(JsonFields& json, const Architecture& a, StatedShape* c) {
  if (c->num_layers < 1 || c->num_layers > kMaxLayers) return Status();  // ValidateShape reports it
  c->window.assign(static_cast<size_t>(c->num_layers), 0);
  if (a.window == WindowRule::kNone) return json.status();
  // An explicit null means full attention; only an absent key means the default.
  const bool silent = !json.HasKey("sliding_window");
  const int64_t window = silent ? a.hf_defaults.sliding_window : json.Int("sliding_window").value_or(0);
  if (window < 0 || window > INT32_MAX) json.Fail("sliding_window", "is " + std::to_string(window));
  TACTUS_RETURN_IF_ERROR(json.status());
  const auto set = [&](size_t layer) { c->window[layer] = static_cast<int32_t>(window); };
  if (a.window == WindowRule::kEveryLayer) {
    for (size_t i = 0; i < c->window.size(); ++i) set(i);
    return Status();
  }
  const bool used = json.Bool("use_sliding_window").value_or(false);
  const int64_t first = json.Int("max_window_layers").value_or(28);
  const std::vector<std::string> types = json.Strings("layer_types");
  if (!types.empty() && types.size() != c->window.size()) {
    json.Fail("layer_types", EntriesText(types.size(), c->window.size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "sliding_attention") {
      json.Fail("layer_types", "holds '" + Printable(types[i]) + "', which is not supported");
    }
  }
  TACTUS_RETURN_IF_ERROR(json.status());
  for (size_t i = 0; i < c->window.size(); ++i) {
    const bool sliding = types.empty() ? static_cast<int64_t>(i) >= first : types[i] == "sliding_attention";
    if (used && sliding) set(i);
  }
  return Status();
}

void AddTokenIds(JsonFields& json, const char* key, std::vector<int64_t> ids, ModelConfig* c) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= c->vocab_size) {
      json.Fail(key, "holds " + std::to_string(id) + ", which is not a token of a vocabulary of " +
                         std::to_string(c->vocab_size));
      return;
    }
    const auto token = static_cast<TokenId>(id);
    if (std::find(c->stop_ids.begin(), c->stop_ids.end(), token) == c->stop_ids.end()) c->stop_ids.push_back(token);
  }
}

Status ReadActivation(JsonFields& json, const Architecture& a, StatedShape* s) {
  s->activation = a.activation;
  const std::optional<std::string> name = json.String(a.hf_keys.activation);
  if (!name.has_value()) return json.status();
  const std::optional<Activation> found = FindActivation(*name);
  if (!found.has_value()) {
    return Unimplemented(json.path() + ": '" + a.hf_keys.activation + "' is '" + Printable(*name) +
                         "'; supported are silu, gelu, gelu_new, gelu_pytorch_tanh, relu and relu2");
  }
  s->activation = *found;
  return Status();
}

// One width for all layers, or a list of one for each (Gemma 3n).
void ReadInner(JsonFields& json, const Architecture& a, int64_t hidden, StatedShape* s) {
  const char* const key = a.hf_keys.inner;
  if (a.hf_inner_by_layer && json.IsList(key)) s->layer_inner = json.IntOrInts(key);
  if (!s->layer_inner.empty()) {
    s->intermediate_size = s->layer_inner[0];
  } else {
    const int64_t factor = a.hf_defaults.inner_factor;
    s->intermediate_size = factor > 0 ? json.Int(key).value_or(factor * hidden) : json.RequiredInt(key);
  }
}

class JsonFamilyFields final : public FamilyFields {
 public:
  JsonFamilyFields(const SortedJson& object, const std::string& path) : json_(object, path) {}

  bool gguf() const override { return false; }
  std::optional<double> Number(FieldKey key) override {
    return Read(key, [](JsonFields& f, const char* k) { return f.Float(k); });
  }
  std::optional<bool> Flag(FieldKey key) override {
    return Read(key, [](JsonFields& f, const char* k) { return f.Bool(k); });
  }
  std::optional<std::string> Text(FieldKey key) override {
    return Read(key, [](JsonFields& f, const char* k) { return f.String(k); });
  }
  std::optional<bool> FlagOrNumber(FieldKey key) override {
    if (key.hf == nullptr || json_.IsFlag(key.hf)) return Flag(key);
    const std::optional<double> number = Number(key);
    return number.has_value() ? std::optional(*number != 0.0) : std::nullopt;
  }
  Presence PresenceOf(FieldKey key) override {
    if (key.hf == nullptr || !json_.HasKey(key.hf)) return Presence::kAbsent;
    return json_.Has(key.hf) ? Presence::kStated : Presence::kNull;
  }
  std::vector<double> Numbers(FieldKey key) override {
    std::vector<double> numbers;
    if (key.hf == nullptr) return numbers;
    for (const int64_t n : json_.IntOrInts(key.hf)) numbers.push_back(static_cast<double>(n));
    return numbers;
  }
  std::vector<double> Reals(FieldKey key) override {
    return key.hf == nullptr ? std::vector<double>() : json_.Floats(key.hf);
  }
  std::vector<std::string> Texts(FieldKey key) override {
    return key.hf == nullptr ? std::vector<std::string>() : json_.Strings(key.hf);
  }
  bool HasTensor(Role, int64_t) override { return true; }
  void Refuse(FieldKey key, const std::string& what) override { json_.Fail(key.hf != nullptr ? key.hf : "", what); }
  const Status& status() const override { return json_.status(); }

 private:
  // "a.b": key b of object a, which may have dots again.
  template <class Get>
  std::invoke_result_t<Get, JsonFields&, const char*> Read(FieldKey key, Get get) {
    return key.hf == nullptr ? std::nullopt : ReadIn(json_, key.hf, get);
  }
  template <class Get>
  std::invoke_result_t<Get, JsonFields&, const char*> ReadIn(JsonFields& json, const char* key, Get get) {
    const std::string_view name = key;
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos) return get(json, key);
    const std::string outer(name.substr(0, dot));
    const SortedJson* const inner = json.Object(outer.c_str());
    if (inner == nullptr) return std::nullopt;
    JsonFields fields(*inner, json.path(), outer + ".");
    auto value = ReadIn(fields, key + dot + 1, get);
    if (!fields.status().ok()) json.Fail(key, "has the wrong type");
    return value;
  }

  JsonFields json_;
};

DType ReadWeightDType(JsonFields& json) {
  const std::string name =
      json.Has("dtype") ? json.String("dtype").value_or("") : json.String("torch_dtype").value_or("");
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  return DType::kBF16;
}

}  // namespace

Result<ModelConfig> ConfigFromJson(std::string_view text, const std::string& path, FieldRecord* record) {
  TACTUS_ASSIGN_OR_RETURN(const auto whole, ParseJsonObject(text, path));
  const auto part = TextPart(*whole);
  const std::shared_ptr<const SortedJson>& object = part != nullptr ? part : whole;
  JsonFields json(*object, path, part != nullptr ? "text_config." : "");
  TACTUS_ASSIGN_OR_RETURN(const Architecture* const a, ReadArchitecture(json));
  const HfDefaults& defaults = a->hf_defaults;

  ModelConfig c;
  c.architecture = a->name;
  c.text_part = part != nullptr;
  if (c.text_part) c.warnings.emplace_back("pictures and sound are not supported: only the model's text part is used");
  c.name = Printable(json.String("_name_or_path").value_or(""));
  const HfKeys& keys = a->hf_keys;
  c.hidden_size = json.RequiredInt(keys.hidden);
  StatedShape s;
  s.num_layers = json.RequiredInt(keys.layers);
  const auto stated = [&](const char* key, int64_t fallback) {
    return fallback > 0 ? json.Int(key).value_or(fallback) : json.RequiredInt(key);
  };
  s.num_heads = stated(keys.heads, defaults.heads);
  ReadInner(json, *a, c.hidden_size, &s);
  c.vocab_size = stated("vocab_size", defaults.vocab);
  const bool kv_silent = !json.HasKey(keys.kv_heads) && defaults.num_kv_heads > 0;
  s.num_kv_heads = json.Int(keys.kv_heads).value_or(kv_silent ? defaults.num_kv_heads : s.num_heads);
  const int64_t derived = s.num_heads > 0 ? c.hidden_size / s.num_heads : 0;
  s.head_dim = json.Int("head_dim").value_or(defaults.head_dim > 0 ? defaults.head_dim : derived);
  c.max_position = json.Int(keys.max_position).value_or(defaults.max_position);
  s.norm_eps = static_cast<float>(json.Float(keys.norm_eps).value_or(a->hf_norm_eps));
  c.tie_embeddings = json.Bool("tie_word_embeddings").value_or(defaults.tied);
  s.qk_norm = a->qk_norm;
  const bool attention_bias = a->attention_bias_key && json.Bool("attention_bias").value_or(false);
  const bool asked = a->qkv_bias_key != nullptr && json.Bool(a->qkv_bias_key).value_or(false);
  s.qkv_bias = a->qkv_bias || attention_bias || asked;
  s.o_bias = attention_bias;
  s.mlp_bias = a->mlp_bias_key && json.Bool("mlp_bias").value_or(false);
  c.weight_dtype = ReadWeightDType(json);
  TACTUS_RETURN_IF_ERROR(ReadActivation(json, *a, &s));
  TACTUS_RETURN_IF_ERROR(json.status());
  if (!json.Has("head_dim") && defaults.head_dim <= 0 && s.num_heads > 0 && c.hidden_size % s.num_heads != 0) {
    return DataLoss(path + ": hidden_size " + std::to_string(c.hidden_size) +
                    " is not a multiple of num_attention_heads " + std::to_string(s.num_heads) +
                    ", and there is no head_dim");
  }
  c.rope.interleaved = a->hf_interleaved_rope;
  TACTUS_RETURN_IF_ERROR(ReadRope(json, s.head_dim, &c));
  TACTUS_RETURN_IF_ERROR(ReadWindow(json, *a, &s));

  std::vector<int64_t> eos = json.IntOrInts("eos_token_id");
  if (!json.HasKey("eos_token_id") && defaults.eos_id >= 0 && defaults.eos_id < c.vocab_size) {
    eos = {defaults.eos_id};
    c.assumed_stop_id = static_cast<TokenId>(defaults.eos_id);
  }
  std::erase(eos, -1);  // "none" in some files
  AddTokenIds(json, "eos_token_id", std::move(eos), &c);
  const std::vector<int64_t> bos = json.IntOrInts("bos_token_id");
  const int64_t bos_id = !bos.empty() ? bos[0] : json.HasKey("bos_token_id") ? -1 : defaults.bos_id;
  if (!bos.empty() && (bos_id < -1 || bos_id >= c.vocab_size)) {
    json.Fail("bos_token_id", "is " + std::to_string(bos_id) + ", which is not a token of a vocabulary of " +
                                  std::to_string(c.vocab_size));
  }
  c.bos_id = bos_id < c.vocab_size ? static_cast<TokenId>(bos_id) : -1;
  TACTUS_RETURN_IF_ERROR(json.status());
  JsonFamilyFields fields(*object, path);
  RecordedFields recorded(fields, record);
  const Status valid = MakeLayers(*a, recorded, s, &c);
  if (!valid.ok()) return Status(valid.code(), path + ": " + valid.message(), valid.param());
  return c;
}

namespace {

// Samplers of transformers that are not built here.
struct UnbuiltSampler {
  const char* name;
  double off;    // off up to this value; typical_p: off from this value on
  bool samples;  // off with do_sample: false
};
constexpr UnbuiltSampler kUnbuiltSamplers[] = {{"suppress_tokens", 0, false},
                                               {"begin_suppress_tokens", 0, false},
                                               {"bad_words_ids", 0, false},
                                               {"sequence_bias", 0, false},
                                               {"force_words_ids", 0, false},
                                               {"forced_bos_token_id", -1, false},
                                               {"forced_eos_token_id", -1, false},
                                               {"constraints", 0, false},
                                               {"stop_strings", 0, false},
                                               {"no_repeat_ngram_size", 0, false},
                                               {"exponential_decay_length_penalty", 0, false},
                                               {"min_length", 0, false},
                                               {"min_new_tokens", 0, false},
                                               {"num_beams", 1, false},
                                               {"num_beam_groups", 1, false},
                                               {"penalty_alpha", 0, false},
                                               {"guidance_scale", 1, false},
                                               {"dola_layers", 0, false},
                                               {"watermarking_config", 0, false},
                                               {"typical_p", 1, true},
                                               {"epsilon_cutoff", 0, true},
                                               {"eta_cutoff", 0, true},
                                               {"top_h", 0, true}};

void WarnOfUnbuilt(const SortedJson& object, bool samples, ModelConfig* config) {
  std::string list;
  for (const auto& [name, off, only_samples] : kUnbuiltSamplers) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null() || *found == false || (only_samples && !samples)) continue;
    if (found->is_number()) {
      const double value = found->get<double>();
      if (std::string_view(name) == "typical_p" ? value >= off : value <= off) continue;
    } else if (found->empty() || *found == "") {
      continue;
    }
    list += (list.empty() ? "" : ", ") + std::string(name);
    if (found->is_number()) list += " " + found->dump();
  }
  if (!list.empty())
    config->warnings.push_back("generation_config.json sets " + list + ", not supported here: ignored");
}

}  // namespace

Status ApplyGenerationConfig(std::string_view text, const std::string& path, ModelConfig* config) {
  TACTUS_ASSIGN_OR_RETURN(const auto object, ParseJsonObject(text, path));
  JsonFields json(*object, path);
  std::vector<int64_t> eos = json.IntOrInts("eos_token_id");
  std::erase(eos, -1);
  if (std::find(eos.begin(), eos.end(), config->assumed_stop_id) != eos.end()) config->assumed_stop_id = -1;
  AddTokenIds(json, "eos_token_id", std::move(eos), config);
  TACTUS_RETURN_IF_ERROR(json.status());
  const bool samples = json.Bool("do_sample").value_or(true);
  WarnOfUnbuilt(*object, samples, config);
  if (!samples) return json.status();

  StatedSampling& stated = config->generation_defaults;
  const auto fail = [&](const char* key, double value, const std::string& possible) {
    json.Fail(key, "is " + fmt::format("{}", value) + "; possible is " + possible);
  };
  const auto take = [&](const char* key, double low, double high, std::optional<double>* to) {
    const std::optional<double> value = json.Float(key);
    if (value && (*value < low || *value > high))
      fail(key, *value, fmt::format("{} to {}", low, high));
    else if (value)
      *to = value;
  };
  take("temperature", 0.0, kMaxModelTemperature, &stated.temperature);
  take("min_p", 0.0, 1.0, &stated.min_p);
  take("repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty, &stated.repetition_penalty);
  take("presence_penalty", -2.0, 2.0, &stated.presence_penalty);
  take("frequency_penalty", -2.0, 2.0, &stated.frequency_penalty);
  if (const auto top_p = json.Float("top_p"); top_p && !TakeTopP(*top_p, &stated)) fail("top_p", *top_p, "0 to 1");
  if (const auto top_k = json.Float("top_k"); top_k && !TakeTopK(*top_k, &stated))
    fail("top_k", *top_k, "a whole number up to 2147483647; 0 and -1 are all tokens");
  return json.status();
}

}  // namespace tactus::compute
