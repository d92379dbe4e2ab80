#include "compute/model/inspect.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/printable.h"
#include "compute/config/block_text.h"
#include "compute/config/block_work.h"
#include "compute/config/sampling_defaults.h"
#include "compute/weights/quant/quantization.h"
#include "compute/weights/tensor_file.h"

namespace tactus::compute {
namespace {

const char* ScalingName(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kDynamic:
      return "dynamic";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kLongRope:
      return "longrope";
    case RopeScaling::kProportional:
      return "proportional";
  }
  return "unknown";
}

std::string TokenizerKind(const ModelDescription& d) {
  if (d.source == ModelDescription::Source::kGguf) {
    const auto& t = d.gguf_tokenizer;
    if (t.model.empty()) return "none";
    return Printable("gguf " + t.model + (t.pre.empty() ? "" : " / " + t.pre));
  }
  if (!d.tokenizer_json.empty()) return "tokenizer.json";
  if (!d.tokenizer_model.empty()) return "tokenizer.model";
  return "none";
}

std::string Count(int64_t n) {  // 134515008 -> "134,515,008"
  std::string text = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string Megabytes(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// The blocks of the first layer, of which "shape" shows the fields; "layer_groups" shows all layers.
struct FirstLayer {
  explicit FirstLayer(const ModelConfig& c) {
    for (const LayerBlock& b : c.layers.at(0)) {
      if (const auto* a = std::get_if<AttentionBlock>(&b.block)) attention = *a;
      if (const auto* f = std::get_if<GatedFeedForwardBlock>(&b.block)) feed_forward = *f;
      if (const auto* f = std::get_if<FeedForwardBlock>(&b.block)) feed_forward = {f->inner, f->bias, f->activation};
      if (const auto* e = std::get_if<ExpertsBlock>(&b.block)) feed_forward = e->expert;
    }
  }
  AttentionBlock attention;
  GatedFeedForwardBlock feed_forward;
};

// Works from a configuration alone: then the size is that of its dummy weights.
Result<int64_t> WeightBytes(const ModelDescription& d, const InspectOptions& options) {
  LoadWeightsOptions load = options.load;
  if (!load.dummy && !d.weights_status.ok()) load.dummy.emplace();
  return PlanWeightBytes(d, load);
}

std::optional<Result<MemoryPlan>> Plan(const ModelDescription& d, const InspectOptions& options) {
  if (options.memory.available_bytes < 0) return std::nullopt;
  MemoryPlanInput input = options.memory;
  if (input.weight_bytes == 0) {
    const Result<int64_t> bytes = WeightBytes(d, options);
    if (!bytes.ok()) return Result<MemoryPlan>(bytes.status());
    input.weight_bytes = *bytes;
  }
  input.kv_dtype = options.kv_dtype;
  return PlanMemory(d.config, input);
}

Json RopeJson(const RopeConfig& rope) {
  Json j = {{"theta", rope.theta}, {"scaling", ScalingName(rope.scaling)}};
  if (rope.scaling != RopeScaling::kNone) j["factor"] = rope.factor;
  if (rope.original_max_position > 0) j["original_max_position"] = rope.original_max_position;
  j["interleaved"] = rope.interleaved;
  j["frequency_factors"] = rope.frequency_factors.size();
  return j;
}

// Keys are the names of a request's fields.
struct StatedFields {
  Json json;
  void Group(const char*) {}
  template <class T>
  void Field(std::string name, const std::optional<T>& value, const FieldSpec&) {
    std::replace(name.begin(), name.end(), '-', '_');
    if (value) json[name] = *value;
  }
};

Json StatedJson(StatedSampling stated) {
  StatedFields fields;
  stated.VisitFields(fields);
  return fields.json;
}

Json SamplingJson(const SamplingParams& s) {
  return {{"temperature", s.temperature},
          {"top_p", s.top_p},
          {"top_k", s.top_k},
          {"min_p", s.min_p},
          {"repetition_penalty", s.repetition_penalty},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty}};
}

Json ShapeJson(const ModelConfig& c) {
  const auto& [a, f] = FirstLayer(c);
  return {{"layers", c.num_layers()},   {"hidden_size", c.hidden_size},
          {"heads", a.heads},           {"kv_heads", a.kv_heads},
          {"head_dim", a.head_dim},     {"intermediate_size", f.inner},
          {"vocab_size", c.vocab_size}, {"tied_embeddings", c.tie_embeddings},
          {"qkv_bias", a.qkv_bias},     {"o_bias", a.o_bias},
          {"mlp_bias", f.bias},         {"qk_norm", a.qk_norm != QkNorm::kNone},
          {"rms_eps", a.norm_eps},      {"sliding_window", c.Windows()}};
}

Json LayerGroupsJson(const ModelConfig& c) {
  Json groups = Json::array();
  for (const LayerGroup& group : GroupLayers(c.layers)) {
    Json blocks = Json::array();
    for (const LayerBlock& b : group.layer) {
      Json block = Json::object();
      for (const auto& [name, value] : FieldsOf(b.block)) std::visit([&](const auto& v) { block[name] = v; }, value);
      block["parallel"] = b.parallel;
      blocks.push_back(std::move(block));
    }
    groups.push_back({{"layers", group.at}, {"blocks", std::move(blocks)}});
  }
  return groups;
}

// Contexts at which memory is shown: two usual ones, and the model's.
std::vector<int64_t> ShownContexts(const ModelConfig& c) {
  std::vector<int64_t> contexts;
  for (const int64_t context : {int64_t{4096}, int64_t{32768}}) {
    if (context < c.max_position) contexts.push_back(context);
  }
  contexts.push_back(c.max_position);
  return contexts;
}

// Weights, and the KV of one sequence.
Json ContextMemoryJson(const ModelDescription& d, const InspectOptions& options) {
  const Result<int64_t> weights = WeightBytes(d, options);
  Json rows = Json::array();
  for (const int64_t context : ShownContexts(d.config)) {
    const int64_t kv = context * d.config.KvBytesPerToken(options.kv_dtype);
    rows.push_back({{"context", context}, {"kv_bytes", kv}, {"total_bytes", nullptr}});
    if (weights.ok()) rows.back()["total_bytes"] = *weights + kv;
  }
  return rows;
}

std::string ContextMemoryText(const ModelConfig& c, DType kv_dtype) {
  std::string text;
  for (const int64_t context : ShownContexts(c)) {
    text += fmt::format("{}{} at {}{}", text.empty() ? "" : ", ", Megabytes(context * c.KvBytesPerToken(kv_dtype)),
                        Count(context), text.empty() ? " tokens" : "");
  }
  return text;
}

}  // namespace

Json InspectJson(const ModelDescription& d, const InspectOptions& options) {
  const ModelConfig& c = d.config;
  Json j = {
      {"path", d.path},
      {"format", d.source == ModelDescription::Source::kGguf ? "gguf" : "huggingface"},
      {"architecture", c.architecture},
      {"name", c.name},
      {"parameters", c.NumParameters()},
      {"active_parameters", ActiveParameters(c)},
      {"shape", ShapeJson(c)},
      {"layer_groups", LayerGroupsJson(c)},
      {"context", c.max_position},
      {"rope", RopeJson(c.rope)},
      {"weight_dtype", InfoOf(c.weight_dtype).name},
      {"weight_file_bytes", d.weight_file_bytes},
      {"kv_dtype", InfoOf(options.kv_dtype).name},
      {"kv_bytes_per_token", c.KvBytesPerToken(options.kv_dtype)},
      {"memory_at_contexts", ContextMemoryJson(d, options)},
      {"stop_ids", c.stop_ids},
      {"tokenizer", TokenizerKind(d)},
      {"chat_template", !d.chat_template.empty()},
      {"tool_use_template", !d.tool_use_template.empty()},
  };
  if (d.quantization != nullptr) j["quantization"] = QuantizationText(*d.quantization);
  auto& formats = j["tensor_formats"] = Json::array();
  for (const auto& f : d.tensor_formats) {
    formats.push_back({{"dtype", InfoOf(f.dtype).name}, {"tensors", f.tensors}, {"bytes", f.bytes}});
  }
  j["weights"] = d.weights_status.ok() ? Json("ok") : Json(d.weights_status.message());
  if (c.bos_id >= 0) j["bos_id"] = c.bos_id;
  if (c.generation_defaults.any()) j["generation_defaults"] = StatedJson(c.generation_defaults);
  j["sampling"] = SamplingJson(DefaultSampling(options.sampling, c.generation_defaults));
  if (!options.ends.empty()) {
    auto& ends = j["ends"] = Json::array();
    for (const EndToken& end : options.ends)
      ends.push_back({{"id", end.id}, {"text", end.text}, {"source", end.source}});
  }
  j["warnings"] = options.warnings;
  if (!options.numerics.empty()) j["numerics"] = options.numerics;
  j["start"] = options.start.ok() ? Json("ok") : Json(options.start.message());
  j["memory_plan"] = nullptr;
  if (const auto plan = Plan(d, options)) {
    if (plan->ok()) {
      const MemoryPlan& p = **plan;
      j["memory_plan"] = {{"weight_bytes", p.weight_bytes},         {"kv_bytes", p.kv_bytes},
                          {"activation_bytes", p.activation_bytes}, {"total_bytes", p.total_bytes},
                          {"available_bytes", p.available_bytes},   {"blocks", p.num_blocks},
                          {"max_model_len", p.max_model_len}};
    } else {
      j["memory_plan"] = {{"error", plan->status().message()}};
    }
  }
  return j;
}

std::string InspectText(const ModelDescription& d, const InspectOptions& options) {
  const ModelConfig& c = d.config;
  std::string out;
  const auto row = [&](const char* label, const std::string& value) {
    out += fmt::format("{:<16} {}\n", label, value);
  };
  row("model", c.name);
  row("path", d.path);
  row("architecture",
      fmt::format("{} ({})", c.architecture, d.source == ModelDescription::Source::kGguf ? "GGUF" : "Hugging Face"));
  const int64_t parameters = c.NumParameters(), active = ActiveParameters(c);
  row("parameters", Count(parameters) + (active < parameters ? fmt::format(", {} per token", Count(active)) : ""));
  row("layers", fmt::format("{} of hidden size {}", c.num_layers(), c.hidden_size));
  for (const LayerGroup& group : GroupLayers(c.layers))
    row("", fmt::format("{}: {}", RangesText(group.at), TextOf(group.layer)));
  row("vocabulary", fmt::format("{}{}", Count(c.vocab_size), c.tie_embeddings ? ", tied embeddings" : ""));
  row("context", Count(c.max_position) + " tokens");
  std::string rope = fmt::format("theta {}, scaling {}", c.rope.theta, ScalingName(c.rope.scaling));
  if (c.rope.scaling != RopeScaling::kNone) rope += fmt::format(" x{}", c.rope.factor);
  if (!c.rope.frequency_factors.empty()) rope += ", frequency factors";
  row("rope", rope);
  if (!d.weights_status.ok()) row("weights", "none: " + d.weights_status.message());
  if (d.quantization != nullptr) row("quantised by", QuantizationText(*d.quantization));
  for (const auto& t : d.tensor_formats) {
    row(&t == &d.tensor_formats[0] ? "weights" : "",
        fmt::format("{:<5} {:>4} tensors {:>12}", InfoOf(t.dtype).name, t.tensors, Megabytes(t.bytes)));
  }
  row("KV per token",
      fmt::format("{} bytes in {}", Count(c.KvBytesPerToken(options.kv_dtype)), InfoOf(options.kv_dtype).name));
  row("KV of a sequence", ContextMemoryText(c, options.kv_dtype));
  if (!options.numerics.empty()) row("numerics", options.numerics);
  if (options.ends.empty())
    row("stop ids", c.stop_ids.empty() ? "none" : fmt::format("{}", fmt::join(c.stop_ids, ", ")));
  for (const EndToken& end : options.ends)
    row(&end == &options.ends[0] ? "stop ids" : "", fmt::format("{} {} ({})", end.id, end.text, end.source));
  row("sampling", DefaultSamplingText(options.sampling, c.generation_defaults, SamplingSource(d)));
  row("tokenizer", TokenizerKind(d));
  row("chat template", fmt::format("{}{}", d.chat_template.empty() ? "no" : "yes",
                                   d.tool_use_template.empty() ? "" : ", and one for chats with tools"));
  for (const std::string& warning : options.warnings) row("warning", warning);
  if (!options.start.ok()) row("cannot start", options.start.message());
  if (const auto plan = Plan(d, options)) {
    out += plan->ok() ? (*plan)->ToString() : "memory plan: does not fit: " + plan->status().message() + "\n";
  }
  return out;
}

}  // namespace tactus::compute
