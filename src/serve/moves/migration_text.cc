#include "serve/moves/migration_text.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/json.h"

namespace tactus::serve {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();

Status Bad(const char* name, const char* what) {
  return InvalidArgument(fmt::format("{}: {}", name, what), name);
}

const Json* Find(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

template <class T>
Status ReadNumber(const Json& object, const char* name, T* to, int64_t low = 0, int64_t high = kMost) {
  TACTUS_ASSIGN_OR_RETURN(const int64_t value, NumberMember(object, name, low, high));
  *to = static_cast<T>(value);
  return Status();
}

Status ReadFloat(const Json& object, const char* name, float* to) {
  const Json* value = Find(object, name);
  if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>())) return Bad(name, "no number");
  *to = value->get<float>();
  return Status();
}

Status ReadText(const Json& object, const char* name, std::string* to) {
  TACTUS_ASSIGN_OR_RETURN(*to, TextMember(object, name));
  return Status();
}

Status ReadBool(const Json& object, const char* name, bool* to) {
  const Json* value = Find(object, name);
  if (value == nullptr || !value->is_boolean()) return Bad(name, "neither true nor false");
  *to = value->get<bool>();
  return Status();
}

Status ReadTokens(const Json& object, const char* name, std::vector<TokenId>* to) {
  const Json* list = Find(object, name);
  if (list == nullptr || !list->is_array()) return Bad(name, "no list");
  to->clear();
  to->reserve(list->size());
  for (const Json& id : *list) {
    if (!id.is_number_integer() || id < 0 || id > kMost32) return Bad(name, "no list of token ids");
    to->push_back(id.get<TokenId>());
  }
  return Status();
}

Json JsonOfSampling(const SamplingParams& s) {
  Json bias = Json::array();
  for (const auto& [id, value] : s.logit_bias) bias.push_back({id, value});
  return {{"temperature", s.temperature},
          {"top_p", s.top_p},
          {"top_k", s.top_k},
          {"min_p", s.min_p},
          {"repetition_penalty", s.repetition_penalty},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"seed", s.seed},
          {"logprobs", s.logprobs},
          {"logit_bias", bias}};
}

Status ReadSampling(const Json& json, SamplingParams* s) {
  for (const auto& [name, to] :
       {std::pair("temperature", &s->temperature), std::pair("top_p", &s->top_p), std::pair("min_p", &s->min_p),
        std::pair("repetition_penalty", &s->repetition_penalty), std::pair("presence_penalty", &s->presence_penalty),
        std::pair("frequency_penalty", &s->frequency_penalty)})
    TACTUS_RETURN_IF_ERROR(ReadFloat(json, name, to));
  if (s->temperature < 0 || s->repetition_penalty < static_cast<float>(kMinRepetitionPenalty))
    return Bad("sampling", "outside its range");
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "top_k", &s->top_k, 0, kMost32));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "logprobs", &s->logprobs, -1, 1 << 20));
  const Json* seed = Find(json, "seed");
  if (seed == nullptr || !seed->is_number_integer()) return Bad("seed", "no integer");
  s->seed = seed->get<uint64_t>();
  s->has_seed = true;
  const Json* bias = Find(json, "logit_bias");
  if (bias == nullptr || !bias->is_array()) return Bad("logit_bias", "no list");
  for (const Json& entry : *bias) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_integer() || !entry[1].is_number())
      return Bad("logit_bias", "no list of pairs");
    s->logit_bias.emplace_back(entry[0].get<TokenId>(), entry[1].get<float>());
  }
  return Status();
}

Json JsonOfRequest(const Request& r) {
  return {{"id", r.id},
          {"prompt", *r.prompt},
          {"sampling", JsonOfSampling(r.sampling)},
          {"max_tokens", r.stop.max_tokens},
          {"min_tokens", r.stop.min_tokens},
          {"ignore_eos", r.stop.ignore_eos},
          {"stop_token_ids", r.stop.stop_token_ids},
          {"stop", r.stop.stop},
          {"priority", r.priority},
          {"planned_position", r.planned.position},
          {"planned_kv_tokens", r.planned.kv_tokens},
          {"ttft_ns", r.slo.ttft_ns},
          {"tbt_ns", r.slo.tbt_ns},
          {"jct_ns", r.slo.jct_ns},
          {"slo_class", r.slo_class},
          {"adapter", r.adapter},
          {"cache_salt", r.cache_salt},
          {"owner", r.owner},
          {"client", r.client}};
}

Status ReadRequest(const Json& json, Request* r) {
  std::vector<TokenId> prompt;
  TACTUS_RETURN_IF_ERROR(ReadTokens(json, "prompt", &prompt));
  r->prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  const Json* sampling = Find(json, "sampling");
  if (sampling == nullptr) return Bad("sampling", "missing");
  TACTUS_RETURN_IF_ERROR(ReadSampling(*sampling, &r->sampling));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "max_tokens", &r->stop.max_tokens, 1));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "min_tokens", &r->stop.min_tokens));
  TACTUS_RETURN_IF_ERROR(ReadBool(json, "ignore_eos", &r->stop.ignore_eos));
  TACTUS_RETURN_IF_ERROR(ReadTokens(json, "stop_token_ids", &r->stop.stop_token_ids));
  const Json* stop = Find(json, "stop");
  if (stop == nullptr || !stop->is_array()) return Bad("stop", "no list");
  for (const Json& text : *stop) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) return Bad("stop", "no list of texts");
    r->stop.stop.push_back(text.get<std::string>());
  }
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "priority", &r->priority, -kMost32, kMost32));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "planned_position", &r->planned.position, -1, kMost32));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "planned_kv_tokens", &r->planned.kv_tokens, 0, kMost32));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "ttft_ns", &r->slo.ttft_ns));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "tbt_ns", &r->slo.tbt_ns));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "jct_ns", &r->slo.jct_ns));
  for (const auto& [name, to] :
       {std::pair("id", &r->id), std::pair("slo_class", &r->slo_class), std::pair("adapter", &r->adapter),
        std::pair("cache_salt", &r->cache_salt), std::pair("owner", &r->owner), std::pair("client", &r->client)})
    TACTUS_RETURN_IF_ERROR(ReadText(json, name, to));
  return Status();
}

// The logarithm of probability 0 is infinite, which JSON cannot represent: it becomes null.
Json JsonOfLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) {
  Json all = Json::array();
  for (const auto& row : rows) {
    Json entries = Json::array();
    for (const TokenLogprob& entry : row) {
      Json value = nullptr;
      if (std::isfinite(entry.logprob)) value = entry.logprob;
      entries.push_back({entry.token, value});
    }
    all.push_back(std::move(entries));
  }
  return all;
}

Status ReadLogprobs(const Json& object, const char* name, std::vector<std::vector<TokenLogprob>>* rows) {
  const Json* all = Find(object, name);
  if (all == nullptr || !all->is_array()) return Bad(name, "no list");
  for (const Json& row : *all) {
    if (!row.is_array()) return Bad(name, "no list of lists");
    std::vector<TokenLogprob>& entries = rows->emplace_back();
    for (const Json& entry : row) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_integer() ||
          !(entry[1].is_null() || entry[1].is_number())) {
        return Bad(name, "no list of tokens with their logprobs");
      }
      entries.push_back({entry[0].get<TokenId>(),
                         entry[1].is_null() ? -std::numeric_limits<float>::infinity() : entry[1].get<float>()});
    }
  }
  return Status();
}

}  // namespace

std::string MessageOf(const Json& head, std::string_view bytes) {
  std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  text += '\n';
  text += bytes;
  return text;
}

Result<Message> ReadMessage(std::string_view text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return InvalidArgument("a message without its first line");
  json_text::JsonLimits limits;
  limits.max_values = int64_t{1} << 26;  // for a prompt's tokens; the limit of the body applies first
  Message message;
  TACTUS_ASSIGN_OR_RETURN(message.head, json_text::ParseJson(text.substr(0, end), limits));
  if (!message.head.is_object()) return InvalidArgument("a message whose first line is no JSON object");
  message.bytes = text.substr(end + 1);
  return message;
}

Result<std::string> TextMember(const Json& object, const char* name) {
  const Json* value = Find(object, name);
  if (value == nullptr || !value->is_string()) return Bad(name, "no text");
  return value->get<std::string>();
}

Result<int64_t> NumberMember(const Json& object, const char* name, int64_t low, int64_t high) {
  const Json* value = Find(object, name);
  if (value == nullptr || !value->is_number_integer() || (value->is_number_unsigned() && *value > kMost))
    return Bad(name, "no integer");
  const auto number = value->get<int64_t>();
  if (number < low || number > high)
    return InvalidArgument(fmt::format("{} is {}; it must be from {} to {}", name, number, low, high), name);
  return number;
}

Json JsonOf(const MigrationFormat& f) {
  return {{"model", f.model},
          {"fingerprint", f.fingerprint},
          {"kv_dtype", f.kv_dtype},
          {"block_size", f.block_size},
          {"block_bytes", f.block_bytes}};
}

Result<MigrationFormat> FormatOf(const Json& json) {
  MigrationFormat f;
  TACTUS_RETURN_IF_ERROR(ReadText(json, "model", &f.model));
  TACTUS_RETURN_IF_ERROR(ReadText(json, "fingerprint", &f.fingerprint));
  TACTUS_RETURN_IF_ERROR(ReadText(json, "kv_dtype", &f.kv_dtype));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "block_size", &f.block_size, 1, kMost32));
  TACTUS_RETURN_IF_ERROR(ReadNumber(json, "block_bytes", &f.block_bytes, 1));
  return f;
}

Json JsonOf(const MovingSequence& m) {
  return {{"request", JsonOfRequest(m.request)},
          {"output", m.output},
          {"logprobs", JsonOfLogprobs(m.logprobs)},
          {"computed_tokens", m.computed_tokens},
          {"age_ns", m.age_ns},
          {"scheduled_age_ns", m.scheduled_age_ns},
          {"first_token_age_ns", m.first_token_age_ns},
          {"last_token_age_ns", m.last_token_age_ns},
          {"longest_gap_ns", m.longest_gap_ns},
          {"longest_gap_end_age_ns", m.longest_gap_end_age_ns},
          {"late_gaps", m.late_gaps},
          {"cached_tokens", m.cached_tokens},
          {"preemptions", m.preemptions},
          {"recomputed_tokens", m.recomputed_tokens}};
}

Result<MovingSequence> SequenceOf(const Json& json) {
  MovingSequence m;
  const Json* request = Find(json, "request");
  if (request == nullptr) return Bad("request", "missing");
  TACTUS_RETURN_IF_ERROR(ReadRequest(*request, &m.request));
  TACTUS_RETURN_IF_ERROR(ReadTokens(json, "output", &m.output));
  TACTUS_RETURN_IF_ERROR(ReadLogprobs(json, "logprobs", &m.logprobs));
  for (const auto& [name, to] :
       {std::pair("age_ns", &m.age_ns), std::pair("scheduled_age_ns", &m.scheduled_age_ns),
        std::pair("first_token_age_ns", &m.first_token_age_ns), std::pair("last_token_age_ns", &m.last_token_age_ns),
        std::pair("longest_gap_ns", &m.longest_gap_ns), std::pair("longest_gap_end_age_ns", &m.longest_gap_end_age_ns)})
    TACTUS_RETURN_IF_ERROR(ReadNumber(json, name, to, -1));
  for (const auto& [name, to] : {std::pair("computed_tokens", &m.computed_tokens), std::pair("late_gaps", &m.late_gaps),
                                 std::pair("cached_tokens", &m.cached_tokens), std::pair("preemptions", &m.preemptions),
                                 std::pair("recomputed_tokens", &m.recomputed_tokens)})
    TACTUS_RETURN_IF_ERROR(ReadNumber(json, name, to, 0, kMost32 - 1));
  return m;
}

}  // namespace tactus::serve
