#include "compute/weights/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/printable.h"
#include "compute/config/architecture.h"
#include "compute/config/sampling_defaults.h"

namespace tactus::compute {
namespace {

// A number for all layers, or one per layer: then of the first, and all of them in *layers if they differ.
std::optional<int64_t> LayerInts(GgufFields& fields, const GgufFile& file, const std::string& key,
                                 std::vector<int64_t>* layers) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr || value->type != GgufType::kArray) return fields.Int(key);
  const std::vector<double> numbers = fields.Numbers(key);
  if (numbers.empty()) {
    fields.Fail(key, "is an empty array");
    return std::nullopt;
  }
  for (const double n : numbers) {
    if (std::abs(n) >= 1e15) {
      fields.Fail(key, "holds " + std::to_string(n));
      return std::nullopt;
    }
    layers->push_back(static_cast<int64_t>(n));
  }
  if (std::all_of(numbers.begin(), numbers.end(), [&](double n) { return n == numbers[0]; })) layers->clear();
  return static_cast<int64_t>(numbers[0]);
}

// One number for all layers.
std::optional<int64_t> UniformInt(GgufFields& fields, const GgufFile& file, const std::string& key) {
  std::vector<int64_t> layers;
  const std::optional<int64_t> first = LayerInts(fields, file, key, &layers);
  if (!layers.empty()) fields.Fail(key, "differs between layers, which is not supported");
  return first;
}

bool FirstLayerHas(const GgufFile& file, const TensorNames& names, Role role) {
  return !names.Of(role).pattern.empty() && file.tensors.contains(names.Name(role, 0));
}

// The factor of cos and sin: a function of `factor`, divided by that of the model's share in the weights.
void ReadYarn(GgufFields& fields, const std::string& prefix, double factor, ModelConfig* config) {
  RopeConfig& rope = config->rope;
  const auto stretch = [&](double m) { return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; };
  rope.scaling = RopeScaling::kYarn;
  rope.factor = static_cast<float>(factor);
  rope.original_max_position = fields.Int(prefix + "original_context_length").value_or(config->max_position);
  rope.beta_fast = static_cast<float>(fields.Float(prefix + "yarn_beta_fast").value_or(32.0));
  rope.beta_slow = static_cast<float>(fields.Float(prefix + "yarn_beta_slow").value_or(1.0));
  const double scale = fields.Float(prefix + "attn_factor").value_or(1.0);
  rope.attention_factor =
      static_cast<float>(scale * stretch(1.0) / stretch(fields.Float(prefix + "yarn_log_multiplier").value_or(0.0)));
}

// A tensor of factors of frequencies, [half of the dimensions that turn]; empty: the file has none.
Status ReadFactors(const GgufFile& file, const std::string& name, int64_t size, std::vector<float>* factors) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) return Status();
  const TensorEntry& t = found->second;
  if (t.dtype != DType::kF32 || t.shape.size() != 1 || t.shape[0] != size) {
    return DataLoss(file.path + ": tensor '" + name + "' is " + InfoOf(t.dtype).name + " " + ShapeText(t.shape) +
                    ", expected f32 [" + std::to_string(size) + "] (half of the dimensions that turn)");
  }
  factors->resize(static_cast<size_t>(size));
  std::memcpy(factors->data(), t.data, factors->size() * sizeof(float));
  for (const float f : *factors) {
    if (!(std::isfinite(f) && f > 0.0f)) {
      return DataLoss(file.path + ": tensor '" + name + "' holds " + std::to_string(f) +
                      "; only positive numbers are possible");
    }
  }
  return Status();
}

Status ReadLongRope(GgufFields& fields, const GgufFile& file, const std::string& scaling, int64_t size,
                    ModelConfig* config) {
  RopeConfig& rope = config->rope;
  TACTUS_RETURN_IF_ERROR(ReadFactors(file, "rope_factors_short.weight", size, &rope.short_factors));
  TACTUS_RETURN_IF_ERROR(ReadFactors(file, "rope_factors_long.weight", size, &rope.long_factors));
  if (rope.short_factors.empty() && rope.long_factors.empty()) return Status();
  rope.scaling = RopeScaling::kLongRope;
  rope.original_max_position = fields.Int(scaling + "original_context_length").value_or(config->max_position);
  rope.attention_factor = static_cast<float>(fields.Float(scaling + "attn_factor").value_or(1.0));
  return fields.status();
}

Status ReadRope(GgufFields& fields, const GgufFile& file, const std::string& prefix, int64_t head_dim,
                ModelConfig* config) {
  RopeConfig& rope = config->rope;
  rope.theta = static_cast<float>(fields.Float(prefix + "rope.freq_base").value_or(10000.0));
  const int64_t rotary = fields.Int(prefix + "rope.dimension_count").value_or(head_dim);
  if (rotary < 2 || rotary > head_dim || rotary % 2 != 0) {
    return DataLoss(file.path + ": " + prefix + "rope.dimension_count is " + std::to_string(rotary) +
                    "; possible are even numbers up to head_dim, " + std::to_string(head_dim));
  }
  rope.rotary_dim = rotary == head_dim ? 0 : static_cast<int32_t>(rotary);
  const std::string scaling = prefix + "rope.scaling.";
  const double factor =
      fields.Float(scaling + "factor").value_or(fields.Float(prefix + "rope.scale_linear").value_or(1.0));
  const std::string type = fields.String(scaling + "type").value_or(factor != 1.0 ? "linear" : "none");
  if (type == "linear" && factor != 1.0 && factor != 0.0) {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = static_cast<float>(factor);
  } else if (type == "yarn") {
    ReadYarn(fields, scaling, factor, config);
  } else if (type != "none" && type != "linear" && type != "longrope") {
    return Unimplemented(
        file.path + ": RoPE scaling '" + Printable(type) + "' (" + scaling +
        "type) is not supported; supported are none, linear, yarn, longrope and the rope_freqs tensor");
  }
  TACTUS_RETURN_IF_ERROR(fields.status());
  TACTUS_RETURN_IF_ERROR(ReadLongRope(fields, file, scaling, rotary / 2, config));
  return ReadFactors(file, "rope_freqs.weight", rotary / 2, &rope.frequency_factors);
}

class GgufFamilyFields final : public FamilyFields {
 public:
  GgufFamilyFields(const GgufFile& file, std::string prefix, const TensorNames& names)
      : file_(file), names_(names), fields_(file), prefix_(std::move(prefix)) {}

  bool gguf() const override { return true; }
  std::optional<double> Number(FieldKey key) override {
    if (key.gguf == nullptr) return std::nullopt;
    read_.insert(key.gguf);
    return fields_.Float(prefix_ + key.gguf);
  }
  std::optional<bool> Flag(FieldKey key) override {
    if (key.gguf == nullptr) return std::nullopt;
    return fields_.Bool(prefix_ + key.gguf);
  }
  std::optional<std::string> Text(FieldKey key) override {
    if (key.gguf == nullptr) return std::nullopt;
    return fields_.String(prefix_ + key.gguf);
  }
  std::optional<bool> FlagOrNumber(FieldKey key) override { return Flag(key); }
  Presence PresenceOf(FieldKey key) override {
    const bool stated = key.gguf != nullptr && file_.Find(prefix_ + key.gguf) != nullptr;
    return stated ? Presence::kStated : Presence::kAbsent;
  }
  std::vector<double> Numbers(FieldKey key) override {
    if (key.gguf == nullptr) return {};
    read_.insert(key.gguf);
    const GgufValue* const value = file_.Find(prefix_ + key.gguf);
    if (value == nullptr || value->type == GgufType::kArray) return fields_.Numbers(prefix_ + key.gguf);
    return {fields_.Float(prefix_ + key.gguf).value_or(0.0)};
  }
  std::vector<double> Reals(FieldKey key) override { return Numbers(key); }
  std::vector<std::string> Texts(FieldKey key) override {
    return key.gguf == nullptr ? std::vector<std::string>() : fields_.Strings(prefix_ + key.gguf);
  }
  bool HasTensor(Role role, int64_t layer) override { return file_.tensors.contains(names_.Name(role, layer)); }
  void Refuse(FieldKey key, const std::string& what) override {
    fields_.Fail(key.gguf != nullptr ? prefix_ + key.gguf : "", what);
  }
  const Status& status() const override { return fields_.status(); }

  // Refuses factors that the file states and the family does not read.
  Status CheckAllRead(const GgufFile& file, std::string_view family) {
    for (const char* key : {"attention.scale", "logit_scale", "residual_scale", "embedding_scale",
                            "attn_logit_softcapping", "final_logit_softcapping", "expert_count"}) {
      const std::string_view name = key;
      const double unused = name.ends_with("softcapping") || name == "expert_count" ? 0.0 : 1.0;
      if (read_.contains(key) || fields_.Float(prefix_ + key).value_or(unused) == unused) continue;
      return Unimplemented(file.path + ": metadata '" + prefix_ + key + "' is not supported for the architecture " +
                           std::string(family));
    }
    return fields_.status();
  }

 private:
  const GgufFile& file_;
  const TensorNames& names_;
  GgufFields fields_;
  std::set<std::string, std::less<>> read_;  // of Number and Numbers
  const std::string prefix_;
};

void AddStopId(GgufFields& fields, const char* key, ModelConfig* config) {
  constexpr int64_t kNone = 0xFFFFFFFF;  // written by some files for "none"
  const std::optional<int64_t> id = fields.Int(key);
  if (!id || *id < 0 || *id == kNone) return;
  if (*id >= config->vocab_size) {
    config->warnings.push_back(fmt::format("{} is {}, which is no token of a vocabulary of {}: it ends no answer", key,
                                           *id, config->vocab_size));
    return;
  }
  const auto token = static_cast<TokenId>(*id);
  if (std::find(config->stop_ids.begin(), config->stop_ids.end(), token) == config->stop_ids.end()) {
    config->stop_ids.push_back(token);
  }
}

// general.sampling.*: the values recommended by the model's authors. Numbers beyond a range's neutral end mean that
// end, as in llama.cpp, where the keys come from: a temperature below 0 is greedy, a top_k below 1 all tokens.
Status ReadSampling(GgufFields& fields, ModelConfig* config) {
  const auto number = [&](const char* name) { return fields.Float(std::string("general.sampling.") + name); };
  const auto fail = [&](const char* name, double value, const std::string& possible) {
    fields.Fail(std::string("general.sampling.") + name, fmt::format("is {}; possible is {}", value, possible));
  };
  StatedSampling& stated = config->generation_defaults;
  if (const auto value = number("temp")) {
    if (*value > kMaxModelTemperature) fail("temp", *value, fmt::format("up to {}", kMaxModelTemperature));
    stated.temperature = std::max(*value, 0.0);
  }
  if (const auto value = number("top_p")) TakeTopP(std::clamp(*value, 0.0, 1.0), &stated);
  if (const auto value = number("min_p")) stated.min_p = std::clamp(*value, 0.0, 1.0);
  if (const auto value = number("top_k"); value && !TakeTopK(*value, &stated))
    fail("top_k", *value, "a whole number up to 2147483647");
  const double counted = number("penalty_last_n").value_or(-1.0);
  if (const auto value = number("penalty_repeat"); value && counted != 0.0) {
    if (*value < kMinRepetitionPenalty || *value > kMaxRepetitionPenalty)
      fail("penalty_repeat", *value, fmt::format("{} to {}", kMinRepetitionPenalty, kMaxRepetitionPenalty));
    stated.repetition_penalty = value;
    if (counted > 0.0 && *value != 1.0) {
      config->warnings.push_back(fmt::format(
          "general.sampling.penalty_last_n is {}: the repetition penalty counts the whole prompt and answer here",
          counted));
    }
  }
  for (const char* name : {"xtc_probability", "mirostat"}) {
    if (number(name).value_or(0.0) > 0.0) {
      config->warnings.push_back(
          fmt::format("general.sampling.{} is {}, which is not built: it is left out", name, *number(name)));
    }
  }
  if (!fields.String("general.sampling.sequence").value_or("").empty()) {
    config->warnings.push_back(
        "general.sampling.sequence names an order of samplers: here it is always penalties, temperature, min_p, top_k, "
        "top_p");
  }
  return fields.status();
}

// The format of most of the linear weights' bytes.
DType BulkDType(const GgufFile& file) {
  std::map<DType, int64_t> bytes;
  for (const auto& [name, tensor] : file.tensors) {
    if (tensor.shape.size() == 2 && name.starts_with("blk.")) bytes[tensor.dtype] += tensor.bytes;
  }
  DType best = DType::kF32;
  int64_t most = -1;
  for (const auto& [dtype, n] : bytes) {
    if (n > most) best = dtype, most = n;
  }
  return best;
}

}  // namespace

Result<ModelConfig> ConfigFromGguf(const GgufFile& file, FieldRecord* record) {
  GgufFields fields(file);
  const std::string gguf_name = fields.RequiredString("general.architecture");
  TACTUS_RETURN_IF_ERROR(fields.status());
  const Architecture* architecture = FindGgufArchitecture(gguf_name);
  if (architecture == nullptr) {
    return Unimplemented(file.path + ": architecture '" + Printable(gguf_name) + "' is not supported; supported are " +
                         KnownGgufNames());
  }
  const std::string prefix = gguf_name + ".";
  const TensorNames& names = *architecture->gguf_names;

  ModelConfig c;
  c.architecture = architecture->name;
  c.name = Printable(fields.String("general.name").value_or(""));
  StatedShape s;
  s.num_layers = fields.RequiredInt(prefix + "block_count");
  c.hidden_size = fields.RequiredInt(prefix + "embedding_length");
  c.max_position = fields.RequiredInt(prefix + "context_length");
  if (!fields.Has(prefix + "feed_forward_length")) fields.Fail(prefix + "feed_forward_length", "is missing");
  s.intermediate_size = LayerInts(fields, file, prefix + "feed_forward_length", &s.layer_inner).value_or(0);
  if (!fields.Has(prefix + "attention.head_count")) fields.Fail(prefix + "attention.head_count", "is missing");
  s.num_heads = UniformInt(fields, file, prefix + "attention.head_count").value_or(0);
  s.num_kv_heads = LayerInts(fields, file, prefix + "attention.head_count_kv", &s.layer_kv_heads).value_or(s.num_heads);
  const std::string epsilon =
      prefix + (architecture->rms_norm ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon");
  if (!fields.Has(epsilon)) fields.Fail(epsilon, "is missing");
  s.norm_eps = static_cast<float>(fields.Float(epsilon).value_or(0));
  const int64_t derived_head_dim = s.num_heads > 0 ? c.hidden_size / s.num_heads : 0;
  s.head_dim = fields.Int(prefix + "attention.key_length").value_or(derived_head_dim);
  const int64_t value_length = fields.Int(prefix + "attention.value_length").value_or(s.head_dim);
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (value_length != s.head_dim) {
    return Unimplemented(file.path + ": key_length " + std::to_string(s.head_dim) + " and value_length " +
                         std::to_string(value_length) + " differ, which is not supported");
  }

  const std::string embedding_name = names.Name(Role::kEmbedding);
  const auto embedding = file.tensors.find(embedding_name);
  if (embedding == file.tensors.end() || embedding->second.shape.size() != 2) {
    return DataLoss(file.path + ": tensor '" + embedding_name + "' is missing or not a matrix");
  }
  c.vocab_size = embedding->second.shape[0];
  const int64_t stated_vocab = fields.Int(prefix + "vocab_size").value_or(c.vocab_size);
  if (stated_vocab != c.vocab_size) {
    return DataLoss(file.path + ": " + prefix + "vocab_size is " + std::to_string(stated_vocab) + ", but tensor '" +
                    embedding_name + "' has " + std::to_string(c.vocab_size) + " rows");
  }
  c.tie_embeddings = !file.tensors.contains(names.Name(Role::kLmHead));
  s.qkv_bias = architecture->qkv_bias || FirstLayerHas(file, names, Role::kQBias);
  s.o_bias = FirstLayerHas(file, names, Role::kOBias);
  s.mlp_bias = FirstLayerHas(file, names, Role::kUpBias);
  s.qk_norm = architecture->qk_norm || (architecture->gguf_qk_norm && FirstLayerHas(file, names, Role::kQNorm));
  s.activation = architecture->activation;
  c.weight_dtype = BulkDType(file);
  c.rope.interleaved = architecture->gguf_interleaved_rope;
  const int64_t window = fields.Int(prefix + "attention.sliding_window").value_or(0);
  const int64_t bos = fields.Int("tokenizer.ggml.bos_token_id").value_or(-1);
  c.bos_id = bos >= 0 && bos < c.vocab_size ? static_cast<TokenId>(bos) : -1;
  AddStopId(fields, "tokenizer.ggml.eos_token_id", &c);
  AddStopId(fields, "tokenizer.ggml.eot_token_id", &c);
  AddStopId(fields, "tokenizer.ggml.eom_token_id", &c);
  TACTUS_RETURN_IF_ERROR(ReadSampling(fields, &c));
  TACTUS_RETURN_IF_ERROR(fields.status());
  if (window < 0 || window > INT32_MAX) {
    return DataLoss(file.path + ": " + prefix + "attention.sliding_window is " + std::to_string(window));
  }
  // Filled before validation, so bounded by what validation allows.
  if (s.num_layers > 0 && s.num_layers <= kMaxLayers) {
    s.window.assign(static_cast<size_t>(s.num_layers), static_cast<int32_t>(window));
  }
  TACTUS_RETURN_IF_ERROR(ReadRope(fields, file, prefix, s.head_dim, &c));
  GgufFamilyFields family(file, prefix, names);
  RecordedFields recorded(family, record);
  const Status valid = MakeLayers(*architecture, recorded, s, &c);
  if (!valid.ok()) return Status(valid.code(), file.path + ": " + valid.message(), valid.param());
  TACTUS_RETURN_IF_ERROR(family.CheckAllRead(file, architecture->name));
  return c;
}

Status TokenizerFromGguf(const GgufFile& file, int64_t vocab_size, ModelDescription* description) {
  GgufFields fields(file);
  GgufTokenizerFields& t = description->gguf_tokenizer;
  description->chat_template = fields.String("tokenizer.chat_template").value_or("");
  description->tool_use_template = fields.String("tokenizer.chat_template.tool_use").value_or("");
  t.model = fields.String("tokenizer.ggml.model").value_or("");
  t.pre = fields.String("tokenizer.ggml.pre").value_or("");
  t.model_name = description->config.name;
  t.tokens = fields.Strings("tokenizer.ggml.tokens");
  t.merges = fields.Strings("tokenizer.ggml.merges");
  for (const double s : fields.Numbers("tokenizer.ggml.scores")) t.scores.push_back(static_cast<float>(s));
  for (const double n : fields.Numbers("tokenizer.ggml.token_type")) {
    if (!(n >= 0 && n <= 6)) {
      fields.Fail("tokenizer.ggml.token_type", "holds " + std::to_string(n) + "; 0 to 6 are possible");
      break;
    }
    t.types.push_back(static_cast<int32_t>(n));
  }
  const auto id = [&](const char* key) {
    const int64_t value = fields.Int(key).value_or(-1);
    return value >= 0 && value < static_cast<int64_t>(t.tokens.size()) ? value : -1;
  };
  t.bos = id("tokenizer.ggml.bos_token_id");
  t.eos = id("tokenizer.ggml.eos_token_id");
  t.unk = id("tokenizer.ggml.unknown_token_id");
  t.eot = id("tokenizer.ggml.eot_token_id");
  t.eom = id("tokenizer.ggml.eom_token_id");
  t.sep = id("tokenizer.ggml.seperator_token_id");  // as GGUF spells it
  t.has_add_bos = fields.Has("tokenizer.ggml.add_bos_token");
  t.add_bos = fields.Bool("tokenizer.ggml.add_bos_token").value_or(false);
  t.has_add_eos = fields.Has("tokenizer.ggml.add_eos_token");
  t.add_eos = fields.Bool("tokenizer.ggml.add_eos_token").value_or(false);
  t.remove_extra_whitespaces = fields.Bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  t.lowercase = fields.Bool("tokenizer.ggml.normalizer.lowercase");
  t.strip_accents = fields.Bool("tokenizer.ggml.normalizer.strip_accents");
  for (const double byte : fields.Numbers("tokenizer.ggml.precompiled_charsmap")) {
    t.precompiled_charsmap.push_back(static_cast<char>(static_cast<int>(byte)));
  }
  t.add_space_prefix = fields.Bool("tokenizer.ggml.add_space_prefix").value_or(true);
  TACTUS_RETURN_IF_ERROR(fields.status());

  const auto disagree = [&](const char* what, size_t n) {
    return DataLoss(file.path + ": tokenizer.ggml." + what + " has " + std::to_string(n) + " entries, the vocabulary " +
                    std::to_string(t.tokens.size()));
  };
  if (t.tokens.empty() && !t.model.empty())
    return DataLoss(file.path +
                    ": metadata 'tokenizer.ggml.tokens' is missing or empty: the tokeniser has no vocabulary");
  if (!t.scores.empty() && t.scores.size() != t.tokens.size()) return disagree("scores", t.scores.size());
  if (!t.types.empty() && t.types.size() != t.tokens.size()) return disagree("token_type", t.types.size());
  if (static_cast<int64_t>(t.tokens.size()) > vocab_size) {
    return DataLoss(file.path + ": the tokenizer has " + std::to_string(t.tokens.size()) +
                    " tokens, the embedding only " + std::to_string(vocab_size) + " rows");
  }
  return Status();
}

}  // namespace tactus::compute
