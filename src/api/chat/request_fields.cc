#include "api/chat/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/schema_numbers.h"

namespace tactus::api {
namespace {

constexpr double kMaxSloMs = 1e9;

void ReadLogitBias(Fields* fields, const RequestLimits& limits, SamplingParams* sampling) {
  const Json* bias = fields->Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields->FailType("logit_bias", "an object of token id: bias", *bias);
  for (const auto& [key, value] : bias->get_ref<const Json::object_t&>()) {
    TokenId token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= limits.vocab_size) {
      return fields->Fail(InvalidArgument(
          fmt::format("logit_bias: '{}' is no token id from 0 to {}", key.substr(0, 60), limits.vocab_size - 1),
          "logit_bias"));
    }
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100)) {
      return fields->Fail(InvalidArgument(
          fmt::format("logit_bias: {} of token {} is no number from -100 to 100", Shown(value), token), "logit_bias"));
    }
    sampling->logit_bias.emplace_back(token, value.get<float>());
  }
  auto& list = sampling->logit_bias;
  std::sort(list.begin(), list.end());
  const auto twice =
      std::adjacent_find(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != list.end()) {
    fields->Fail(
        InvalidArgument(fmt::format("logit_bias: token {} appears twice; give each once", twice->first), "logit_bias"));
  }
}

int64_t NsOfMs(double ms) {
  return std::max<int64_t>(1, std::llround(ms * 1e6));
}

}  // namespace

Status ParseBody(std::string_view body, StopToken stop, Json* doc) {
  JsonLimits limits;
  limits.stop = stop;
  std::vector<json_text::RoundedNumber> rounded;
  limits.rounded = &rounded;
  std::vector<json_text::LargeInteger> large;
  limits.large = &large;
  TACTUS_ASSIGN_OR_RETURN(*doc, ParseJson(body, limits));
  TACTUS_RETURN_IF_ERROR(CheckBody(*doc));
  TACTUS_RETURN_IF_ERROR(KeepLargeIntegers(large, 0, doc));
  return CheckNumbers(*doc, rounded);
}

Status CheckNumbers(const Json& body, const std::vector<json_text::RoundedNumber>& rounded) {
  if (rounded.empty()) return Status();
  for (const char* name :
       {"response_format", "json_schema", "structured_outputs", "guided_json", "tools", "text", "output_config"}) {
    const auto found = body.find(name);
    if (found == body.end()) continue;
    const Status status = CheckSchemaNumbers(*found, rounded);
    if (!status.ok()) return InvalidArgument(fmt::format("{}: {}", name, status.message()), name);
  }
  return Status();
}

Status CheckBody(const Json& doc) {
  if (!doc.is_object()) return InvalidArgument(fmt::format("the body must be a JSON object, not {}", TypeName(doc)));
  return Status();
}

Status NoSuchModel(std::string_view asked, const std::string& name, const std::vector<std::string>& other_names) {
  std::string has = "'" + name + "'";
  for (const std::string& other : other_names) has += ", '" + other + "'";
  return NotFound(fmt::format("model '{}' does not exist here; this server has {}", asked, has), "model");
}

void ReadModel(Fields* fields, const RequestLimits& limits) {
  const auto model = fields->String("model", kMaxNameBytes);
  if (!model || *model == limits.model) return;
  const auto& others = limits.other_models;
  if (std::find(others.begin(), others.end(), *model) == others.end())
    fields->Fail(NoSuchModel(*model, limits.model, others));
}

void ReadSampling(Fields* fields, const RequestLimits& limits, ParsedRequest* out) {
  SamplingParams& s = out->base.sampling;
  s = limits.generation_defaults;
  s.logprobs = -1;
  if (auto v = fields->Number("temperature", 0, 2)) s.temperature = static_cast<float>(*v);
  if (auto v = fields->Number("top_p", 0, 1, true)) s.top_p = static_cast<float>(*v);
  if (auto v = fields->Integer("top_k", -1, std::numeric_limits<int32_t>::max()))
    s.top_k = std::max(0, static_cast<int32_t>(*v));
  if (auto v = fields->Number("min_p", 0, 1)) s.min_p = static_cast<float>(*v);
  if (auto v = fields->Number("repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty))
    s.repetition_penalty = static_cast<float>(*v);
  if (auto v = fields->Number("presence_penalty", -2, 2)) s.presence_penalty = static_cast<float>(*v);
  if (auto v = fields->Number("frequency_penalty", -2, 2)) s.frequency_penalty = static_cast<float>(*v);
  // A double that rounds to a float zero would break top_p's open lower bound.
  s.top_p = std::max(s.top_p, std::numeric_limits<float>::min());
  if (const Json* seed = fields->Find("seed")) {
    if (seed->is_number_unsigned()) {
      s.seed = seed->get<uint64_t>();
    } else if (const auto number = AsInteger(*seed)) {
      s.seed = static_cast<uint64_t>(*number);
    } else {
      fields->FailType("seed", "a whole number of 64 bits", *seed);
    }
    s.has_seed = true;
  }
  ReadLogitBias(fields, limits, &s);
  if (auto v = fields->Integer("n", 1, limits.max_choices)) out->base.n = static_cast<int32_t>(*v);
}

void ReadStop(Fields* fields, const RequestLimits& limits, int64_t least, ParsedRequest* out) {
  StopConditions& stop = out->base.stop;
  if (const Json* value = fields->Find("stop")) {
    std::vector<const Json*> items;
    if (value->is_array()) {
      for (const Json& item : *value) items.push_back(&item);
    } else {
      items.push_back(value);
    }
    if (items.size() > kMaxStops) {
      fields->Fail(InvalidArgument(fmt::format("stop: {} strings are more than {}, the limit", items.size(), kMaxStops),
                                   "stop"));
      return;
    }
    for (const Json* item : items) {
      if (!item->is_string()) return fields->FailType("stop", "a string or a list of strings", *item);
      const auto& text = item->get_ref<const std::string&>();
      if (text.empty() || text.size() > kMaxStopBytes) {
        return fields->Fail(InvalidArgument(
            fmt::format("stop: a string of {} bytes; give 1 to {}", text.size(), kMaxStopBytes), "stop"));
      }
      stop.stop.push_back(text);
    }
  }
  if (const Json* value = fields->Find("stop_token_ids")) {
    if (!ReadTokens(fields, "stop_token_ids", *value, limits.vocab_size, &stop.stop_token_ids)) return;
    if (stop.stop_token_ids.size() > kMaxStopTokens) {
      fields->Fail(InvalidArgument(
          fmt::format("stop_token_ids: {} ids are more than {}, the limit", stop.stop_token_ids.size(), kMaxStopTokens),
          "stop_token_ids"));
    }
  }
  stop.ignore_eos = fields->Boolean("ignore_eos").value_or(false);
  stop.min_tokens = fields->Integer("min_tokens", 0, limits.max_model_len).value_or(0);
  const int64_t any =
      std::numeric_limits<int64_t>::max();  // the context decides, with the prompt's length (PlaceInContext)
  out->max_tokens = fields->Integer("max_completion_tokens", least, any);
  const auto older_name = fields->Integer("max_tokens", least, any);
  if (out->max_tokens)
    out->max_tokens_field = "max_completion_tokens";
  else
    out->max_tokens = older_name;
  if (out->max_tokens && stop.min_tokens > *out->max_tokens) {
    fields->Fail(
        InvalidArgument(fmt::format("min_tokens: {} is more than the answer may have, {}; lower it, or raise {}",
                                    stop.min_tokens, *out->max_tokens, out->max_tokens_field),
                        "min_tokens"));
  }
}

void ReadSlo(Fields* fields, Request* request) {
  Slo* slo = &request->slo;
  auto read = [&](Fields* from, const char* name, int64_t* target) {
    if (auto v = from->Number(name, 0, kMaxSloMs, true)) *target = NsOfMs(*v);
  };
  read(fields, "ttft_slo_ms", &slo->ttft_ns);
  read(fields, "tpot_slo_ms", &slo->tbt_ns);
  read(fields, "ttlt_slo_ms", &slo->jct_ns);
  const Json* object = fields->Find("slo");
  if (object == nullptr) return;
  if (!object->is_object()) return fields->FailType("slo", "an object of ttft_ms, tbt_ms, jct_ms and class", *object);
  Fields inner(*object, "slo.");
  read(&inner, "ttft_ms", &slo->ttft_ns);
  read(&inner, "tbt_ms", &slo->tbt_ns);
  read(&inner, "jct_ms", &slo->jct_ns);
  request->slo_class = inner.String("class", kMaxClassBytes).value_or("");
  if (!inner.ok()) fields->Fail(inner.status());
}

void ReadStreaming(Fields* fields, ParsedRequest* out) {
  out->stream = fields->Boolean("stream").value_or(false);
  const Json* options = fields->Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields->FailType("stream_options", "an object", *options);
  if (!out->stream) {
    return fields->Fail(InvalidArgument("stream_options: only with \"stream\": true", "stream_options"));
  }
  Fields inner(*options, "stream_options.");
  out->include_usage = inner.Boolean("include_usage").value_or(false);
  (void)inner.Boolean("include_obfuscation");  // chunks are not padded to hide their lengths
  out->continuous_usage = inner.Boolean("continuous_usage_stats").value_or(false) && out->include_usage;
  if (!inner.ok()) fields->Fail(inner.status());
}

void ReadIdentity(Fields* fields, ParsedRequest* out) {
  const auto int32 = std::numeric_limits<int32_t>();
  out->base.priority = static_cast<int32_t>(fields->Integer("priority", int32.min(), int32.max()).value_or(0));
  out->base.client = fields->String("user", kMaxNameBytes).value_or("");
  out->base.cache_salt = fields->String("cache_salt", kMaxNameBytes).value_or("");
}

void RefuseUnbuilt(Fields* fields) {
  if (const Json* modalities = fields->Find("modalities");
      modalities != nullptr && *modalities != Json::array({"text"})) {
    fields->Refuse("modalities", "only [\"text\"]");
  }
  if (const Json* best_of = fields->Find("best_of")) {
    const Json* n = fields->Find("n");
    if (n == nullptr ? *best_of != 1 : *best_of != *n) fields->Refuse("best_of", "only equal to n");
  }
  for (const char* name : {"suffix", "functions", "audio", "prediction", "web_search_options", "logits_processors",
                           "prompt_logprobs", "truncate_prompt_tokens", "prompt_embeds", "chat_template",
                           "allowed_token_ids", "bad_words", "mm_processor_kwargs", "kv_transfer_params"}) {
    fields->Refuse(name);
  }
  if (const Json* call = fields->Find("function_call"); call == nullptr || (*call != "none" && *call != "auto"))
    fields->Refuse("function_call", "give tool_choice");
  for (const char* name : {"use_beam_search", "continue_final_message", "include_stop_str_in_output",
                           "return_token_ids", "return_tokens_as_token_ids"}) {
    fields->RefuseTrue(name);
  }
  for (const char* name : {"skip_special_tokens", "detokenize"}) {
    if (!fields->Boolean(name).value_or(true)) fields->Refuse(name, "only true");
  }
}

bool ReadTokens(Fields* fields, const char* name, const Json& list, int64_t vocab_size, std::vector<TokenId>* out) {
  if (!list.is_array()) {
    fields->FailType(name, "a list of token ids", list);
    return false;
  }
  out->reserve(list.size());
  for (const Json& item : list) {
    const auto id = item.is_number() ? AsInteger(item) : std::nullopt;
    if (!id || *id < 0 || *id >= vocab_size) {
      fields->Fail(InvalidArgument(
          fmt::format("{}: {} is no token id from 0 to {}", fields->Name(name), Shown(item), vocab_size - 1),
          fields->Name(name)));
      return false;
    }
    out->push_back(static_cast<TokenId>(*id));
  }
  return true;
}

Status ApplySloHeader(std::string_view name, std::string_view value, Slo* slo) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view short_name = lower;
  if (short_name.substr(0, 8) == "x-llm-d-")
    short_name.remove_prefix(8);
  else if (short_name.substr(0, 2) == "x-")
    short_name.remove_prefix(2);
  else
    return Status();
  int64_t* target = short_name == "slo-ttft-ms" ? &slo->ttft_ns : short_name == "slo-tpot-ms" ? &slo->tbt_ns : nullptr;
  if (target == nullptr) return Status();
  double ms = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), ms);
  if (error != std::errc() || end != value.data() + value.size() || !(ms > 0 && ms <= kMaxSloMs)) {
    return InvalidArgument(fmt::format("{}: '{}' is no number of milliseconds above 0 and up to {}", lower,
                                       ReplaceInvalidUtf8(value.substr(0, 60)), kMaxSloMs),
                           lower);
  }
  if (*target == 0) *target = NsOfMs(ms);
  return Status();
}

}  // namespace tactus::api
