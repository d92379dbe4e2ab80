#include "api/other_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "api/field_table.h"
#include "api/fields/fields.h"
#include "api/fields/nested_fields.h"
#include "base/json.h"

namespace tactus::api {
namespace {

using Names = std::set<std::string, std::less<>>;

constexpr std::string_view kPaths[] = {"/v1/chat/completions",      "/v1/completions", "/v1/responses", "/v1/messages",
                                       "/v1/messages/count_tokens", "/tokenize",       "/detokenize"};

// A field of another server's API. `harmless`: a JSON list of values that have no effect, besides empty ones; "*": all
// values. `instead`: the replacement, with names of chat fields in braces: "{a|b}" becomes those that the route has.
// `of`: the field that it belongs to; without that field it has no effect.
struct ForeignField {
  std::string_view name, harmless, instead, of = {};
};

constexpr std::string_view kMaxTokens = "give {max_tokens}", kSampling = "there is no such sampling; leave it out",
                           kNotHere = "leave it out",
                           kThinking = "give {chat_template_kwargs|thinking|reasoning_effort}",
                           kLark = "give {structured_outputs.grammar}, in Lark's notation",
                           kContinues = "continuing the assistant's last message is not supported",
                           kTruncates = "a prompt is never cut; send what shall be read",
                           kSearches = "this server searches nothing; leave it out",
                           kOneModel = "this server has one model and uses no other; leave it out",
                           kLora = "adapters are not supported; leave it out",
                           kSalt = "give {cache_salt} where a prefix shall not be shared";

constexpr ForeignField kForeign[] = {
    // --- They do not change the answer: billing, caching, logs ---
    {"store", "*", ""},
    {"metadata", "*", ""},
    {"service_tier", "*", ""},
    {"safety_identifier", "*", ""},
    {"prompt_cache_key", "*", ""},
    {"prompt_cache_retention", "*", ""},
    {"prompt_cache_options", "*", ""},
    {"cache_control", "*", ""},
    {"max_tool_calls", "*", ""},  // for server-side tools
    {"keep_alive", "*", ""},
    {"guided_decoding_backend", "*", ""},
    {"usage", "*", ""},
    {"stream_options", "*", ""},  // for routes without their own stream_options
    {"separate_reasoning", "[true]", "--reasoning-parser none leaves reasoning in the text"},
    {"stream_reasoning", "[true]", kNotHere},
    {"include_reasoning", "[true]", "--reasoning-parser none leaves reasoning in the text"},
    {"parse_tool_calls", "[true]", "give {tool_choice}: \"none\""},
    {"cache_prompt", "[true]", kSalt},
    {"timings_per_token", "[false]", "send the header 'x-tactus-explain: 1'"},
    {"return_progress", "[false]", "send the header 'x-tactus-explain: 1'"},
    {"context_length_exceeded_behavior", "[\"error\"]", kTruncates},
    {"safe_prompt", "[false]", "write it into the system's message"},
    {"no_stop_trim", "[false]", "stop strings are not part of the answer"},
    {"raw_output", "[false]", kNotHere},
    {"spaces_between_special_tokens", "[true]", kNotHere},
    {"do_sample", "[true]", "give {temperature}: 0"},
    {"watermark", "[false]", kNotHere},
    {"truncate", "[false, 0]", kTruncates},
    {"transforms", "", kTruncates},
    {"truncation", "[\"disabled\"]", kTruncates},
    // --- Lengths and ends ---
    {"n_predict", "", kMaxTokens},
    {"num_predict", "", kMaxTokens},
    {"max_new_tokens", "", kMaxTokens},
    {"max_length", "", kMaxTokens},
    {"max_gen_len", "", kMaxTokens},
    {"min_new_tokens", "[0]", "give {min_tokens}"},
    {"min_length", "[0]", "give {min_tokens}"},
    {"stop_words", "", "give {stop}"},
    {"stop_regex", "", "give {stop}, which is text"},
    {"num_ctx", "", "the context is the server's (--max-model-len)"},
    {"n_keep", "[0, -1]", kTruncates},
    {"n_discard", "[0]", kTruncates},
    {"prompt_truncate_len", "", kTruncates},
    {"max_prompt_tokens", "", kTruncates},
    {"t_max_predict_ms", "[0]", "give {slo.jct_ms}"},
    {"n_indent", "[0]", kNotHere},
    {"return_full_text", "[false]", "give {echo}"},
    {"raw", "[false]", "give the text to /v1/completions"},
    // --- Sampling ---
    {"repeat_penalty", "[1]", "give {repetition_penalty}"},
    {"repeat_last_n", "[-1]", "repetition_penalty covers the whole prompt and answer"},
    {"penalize_nl", "[true]", kSampling},
    {"random_seed", "", "give {seed}"},
    {"mirostat", "[0]", kSampling},
    {"mirostat_tau", "", kSampling, "mirostat"},
    {"mirostat_eta", "", kSampling, "mirostat"},
    {"mirostat_target", "", kSampling, "mirostat"},
    {"mirostat_lr", "", kSampling, "mirostat"},
    {"typical_p", "[1]", kSampling},
    {"typical", "[1]", kSampling},
    {"tfs_z", "[1]", kSampling},
    {"top_a", "[0]", kSampling},
    {"top_n_sigma", "[-1, 0]", kSampling},
    {"min_keep", "[0, 1]", kSampling},
    {"xtc_probability", "[0]", kSampling},
    {"xtc_threshold", "", kSampling, "xtc_probability"},
    {"dry_multiplier", "[0]", kSampling},
    {"dry_base", "", kSampling, "dry_multiplier"},
    {"dry_allowed_length", "", kSampling, "dry_multiplier"},
    {"dry_penalty_last_n", "", kSampling, "dry_multiplier"},
    {"dry_sequence_breakers", "", kSampling, "dry_multiplier"},
    {"dynatemp_range", "[0]", kSampling},
    {"dynatemp_exponent", "", kSampling, "dynatemp_range"},
    {"adaptive_target", "[-1]", kSampling},
    {"adaptive_decay", "", kSampling, "adaptive_target"},
    {"samplers", "", "the order is that of docs/reference/api.md"},
    {"length_penalty", "[1]", kSampling},
    {"early_stopping", "[false]", kSampling},
    {"num_beams", "[1]", kSampling},
    {"epsilon_cutoff", "[0]", kSampling},
    {"eta_cutoff", "[0]", kSampling},
    {"no_repeat_ngram_size", "[0]", kSampling},
    {"smoothing_factor", "[0]", kSampling},
    {"custom_logit_processor", "", kSampling},
    {"custom_params", "", kSampling},
    {"vllm_xargs", "", kNotHere},
    {"repetition_detection", "", kSampling},
    {"sampling_params", "", "give its members as fields of the body"},
    {"options", "", "give its members as fields of the body, under OpenAI's names"},
    {"parameters", "", "give its members as fields of the body"},
    {"extra_body", "", "give its members as fields of the body"},
    {"nvext", "", kNotHere},
    // --- The form of the answer ---
    {"format", "", "give {response_format}"},
    {"grammar", "", kLark},
    {"grammar_lazy", "[false]", kLark},
    {"grammar_triggers", "", kLark},
    {"ebnf", "", kLark},
    {"structural_tag", "", kLark},
    {"response_schema", "", "give {response_format}"},
    {"guided_decoding", "", "give {structured_outputs}"},
    {"output_format", "", "give {response_format}"},
    {"verbosity", "[\"medium\"]", "write it into the system's message"},
    {"prompt_mode", "", kThinking},
    {"reasoning_format", "[\"auto\", \"deepseek\", \"parsed\"]", "it is an option of the server, --reasoning-parser"},
    {"thinking_forced_open", "", kThinking},
    {"reasoning_budget", "[-1]", kThinking},
    {"thinking_budget", "", kThinking},
    {"thinking_token_budget", "", kThinking},
    {"enable_thinking", "", kThinking},
    {"think", "", kThinking},
    {"reasoning_split", "[true]", kNotHere},
    {"chat_format", "", "it is an option of the server, --tool-call-parser"},
    {"chat_template_content_format", "[\"auto\", \"string\"]", kNotHere},
    {"mask_sensitive_info", "[false]", kNotHere},
    // --- Prompts ---
    {"template", "", "the chat template is the server's (--chat-template)"},
    {"context", "", "send the whole conversation"},
    {"raw_mode", "[false]", "give the text to /v1/completions"},
    {"input_prefix", "", "fill-in-the-middle is not supported"},
    {"input_suffix", "", "fill-in-the-middle is not supported"},
    {"input_extra", "", "fill-in-the-middle is not supported"},
    {"input_ids", "", "give prompt, to /v1/completions"},
    {"input_embeds", "", kNotHere},
    {"images", "", "images are not supported"},
    {"image_data", "", "images are not supported"},
    {"multimodal_data", "", "images are not supported"},
    {"media_io_kwargs", "", "images are not supported"},
    {"image_config", "", "images are not supported"},
    {"audio_data", "", "audio is not supported"},
    {"video_data", "", "video is not supported"},
    {"prefix", "[false]", kContinues},
    {"partial", "[false]", kContinues},
    {"assistant_prefill", "", kContinues},
    {"prefill_assistant", "[false]", kContinues},
    {"continue_assistant_turn", "[false]", kContinues},
    // --- Extra output with the answer ---
    {"n_probs", "[0]", "give {logprobs|top_logprobs}"},
    {"post_sampling_probs", "[false]", "logprobs are those of the raw logits"},
    {"return_logprob", "[false]", "give {logprobs}"},
    {"logprob_start_len", "[-1]", "give echo and logprobs, to /v1/completions"},
    {"top_logprobs_num", "[0]", "give {top_logprobs|logprobs}"},
    {"return_tokens", "[false]", "/tokenize returns them"},
    {"response_fields", "", kNotHere},
    {"return_hidden_states", "[false]", kNotHere},
    {"return_routed_experts", "[false]", kNotHere},
    {"details", "[false]", "give {logprobs}"},
    {"decoder_input_details", "[false]", "give echo and logprobs, to /v1/completions"},
    {"top_n_tokens", "[0]", "give {top_logprobs|logprobs}"},
    {"perf_metrics_in_response", "[false]", "send the header 'x-tactus-explain: 1'"},
    {"enable_response_messages", "[false]", kNotHere},
    {"request_id", "", "send the header X-Request-Id"},
    {"rid", "", "send the header X-Request-Id"},
    // --- Other models, other machines ---
    {"models", "", kOneModel},
    {"route", "", kOneModel},
    {"provider", "", kOneModel},
    {"preset", "", kOneModel},
    {"fallbacks", "", kOneModel},
    {"plugins", "", kSearches},
    {"search_parameters", "", kSearches},
    {"search_settings", "", kSearches},
    {"enable_search", "[false]", kSearches},
    {"search_options", "", kSearches},
    {"search_mode", "", kSearches},
    {"search_domain_filter", "", kSearches},
    {"search_recency_filter", "", kSearches},
    {"return_images", "[false]", kSearches},
    {"return_related_questions", "[false]", kSearches},
    {"guardrails", "", "this server filters nothing; leave it out"},
    {"safety_model", "", "this server filters nothing; leave it out"},
    {"moderation", "", "this server filters nothing; leave it out"},
    {"lora", "", kLora},
    {"lora_path", "", kLora},
    {"lora_request", "", kLora},
    {"adapter_id", "", kLora},
    {"deferred", "[false]", "/v1/batches answers later"},
    {"id_slot", "[-1]", "the scheduler places requests"},
    {"data_parallel_rank", "", "the router places requests"},
    {"session_params", "", kNotHere},
    {"bootstrap_host", "", kNotHere},
    {"bootstrap_port", "", kNotHere},
    {"bootstrap_room", "", kNotHere},
    {"disagg_prefill_dp_rank", "", kNotHere},
    {"speculation", "", "it is an option of the server, --speculation"},
};

const ForeignField* FindForeign(std::string_view name) {
  const auto* found = std::find_if(std::begin(kForeign), std::end(kForeign),
                                   [name](const ForeignField& field) { return field.name == name; });
  return found == std::end(kForeign) ? nullptr : found;
}

// The names that the parser of each route reads. They do not depend on the model.
struct RouteNames {
  Names known, taken;  // known: taken, and those that the route refuses
};

const RouteNames& NamesOfRoute(std::string_view path) {
  static const std::map<std::string_view, RouteNames> all = [] {
    std::map<std::string_view, RouteNames> routes;
    RequestLimits limits;
    limits.max_model_len = limits.vocab_size = 1;
    const auto names = [&limits](std::string_view route, bool refused) {
      const auto list = NamesOf(route, limits, refused);
      return Names(list.begin(), list.end());
    };
    for (const std::string_view route : kPaths) routes[route] = {names(route, true), names(route, false)};
    return routes;
  }();
  return all.at(path);
}

// The name of a chat field on another route; "": none, the route refuses it.
constexpr struct {
  std::string_view path, name, here;
} kOtherNames[] = {
    {"/v1/responses", "max_tokens", "max_output_tokens"},
    {"/v1/responses", "response_format", "text.format"},
    {"/v1/responses", "reasoning_effort", "reasoning.effort"},
    {"/v1/responses", "top_logprobs", ""},
    {"/v1/messages", "stop", "stop_sequences"},
    {"/v1/messages", "response_format", "output_config.format"},
    {"/v1/messages", "reasoning_effort", "output_config.effort"},
};

// The name of a chat field on this route; empty: the route has no such field.
std::string_view NameHere(std::string_view path, std::string_view name) {
  for (const auto& other : kOtherNames) {
    if (path.starts_with(other.path) && other.name == name) return other.here;
  }
  return NamesOfRoute(path).taken.contains(name) ? name : std::string_view();
}

// The advice with the route's field names; "leave it out" if the route has none of them.
std::string AdviceHere(std::string_view path, std::string_view advice) {
  const size_t open = advice.find('{'), close = advice.find('}');
  if (open == std::string_view::npos) return std::string(advice);
  std::vector<std::string_view> here;
  for (std::string_view names = advice.substr(open + 1, close - open - 1); !names.empty();) {
    const size_t end = std::min(names.find('|'), names.size());
    if (const auto name = NameHere(path, names.substr(0, end)); !name.empty()) here.push_back(name);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  if (here.empty()) return std::string(kNotHere);
  return fmt::format("{}{}{}", advice.substr(0, open), fmt::join(here, " or "), advice.substr(close + 1));
}

bool HasMembers(const Names& names, const std::string& prefix) {
  const auto next = names.lower_bound(prefix);
  return next != names.end() && next->starts_with(prefix);
}

// Checks the names in one object: prefix "" for the body, "slo." for a nested one.
class Reader {
 public:
  Reader(std::string_view path, std::vector<std::string>* ignored)
      : path_(path), known_(NamesOfRoute(path).known), ignored_(*ignored) {}

  Status Read(const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
      if (value.is_null() || (!prefix.empty() && key == "type")) continue;
      const std::string name = prefix + key;
      if (known_.contains(name)) {
        if (name == "metadata") continue;  // free content of the client
        if (HasNestedFields(path_, name))
          ReadNestedFields(path_, name, value, &ignored_);
        else if (value.is_object() && HasMembers(known_, name + "."))
          TACTUS_RETURN_IF_ERROR(Read(value, name + "."));
        continue;
      }
      if (prefix.empty() && generates()) {
        if (const ForeignField* foreign = FindForeign(key)) {
          TACTUS_RETURN_IF_ERROR(CheckForeign(*foreign, object, value));
          continue;
        }
        if (!IsEmpty(value) && value != false) TACTUS_RETURN_IF_ERROR(CheckElsewhere(key));
      }
      ignored_.push_back(name);
    }
    return Status();
  }

 private:
  // On routes that generate no text, ignoring a field for generation does no harm.
  bool generates() const { return path_ != "/tokenize" && path_ != "/detokenize"; }
  static bool IsHarmless(const ForeignField& field, const Json& value) {
    if (field.harmless == "*" || value.is_null() || IsEmpty(value)) return true;
    if (field.harmless.empty()) return false;
    const Json harmless = Json::parse(field.harmless);
    return std::find(harmless.begin(), harmless.end(), value) != harmless.end();
  }
  Status CheckForeign(const ForeignField& field, const Json& body, const Json& value) const {
    if (IsHarmless(field, value)) return Status();
    if (const ForeignField* of = FindForeign(field.of)) {
      const auto asked = body.find(std::string(of->name));
      if (asked == body.end() || IsHarmless(*of, *asked)) return Status();
    }
    return Unimplemented(
        fmt::format("{}: {} is not supported; {}", field.name, Shown(value), AdviceHere(path_, field.instead)),
        std::string(field.name));
  }
  // Rejects a field that another route takes or knows.
  Status CheckElsewhere(const std::string& key) const {
    for (const auto names : {&RouteNames::taken, &RouteNames::known}) {
      for (const std::string_view path : kPaths) {
        if (path == path_ || !(NamesOfRoute(path).*names).contains(key)) continue;
        return InvalidArgument(fmt::format("{}: belongs to {}; leave it out", key, path), key);
      }
    }
    return Status();
  }

  const std::string_view path_;
  const Names& known_;
  std::vector<std::string>& ignored_;
};

}  // namespace

Status ReadOtherFields(const Json& body, std::string_view path, const RequestLimits& limits,
                       std::vector<std::string>* ignored) {
  if (FieldRecording::active()) return Status();  // a recording needs only the names that the parser reads
  TACTUS_RETURN_IF_ERROR(Reader(path, ignored).Read(body, ""));
  if (!limits.strict_fields || ignored->empty()) return Status();
  const std::string& first = ignored->front();
  return InvalidArgument(
      fmt::format("{}: not known here, and nothing is ignored (--strict-fields); leave it out", first),
      first.substr(0, first.rfind(" (")));
}

}  // namespace tactus::api
