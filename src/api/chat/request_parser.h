// JSON bodies of /v1/completions, /v1/chat/completions, /tokenize and /detokenize as plain data, every field checked
// for type and range. No tokeniser, no engine: what depends on the prompt's length is checked by PlaceInContext. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/chat/chat_style.h"
#include "api/fields/field_names.h"
#include "api/tools/tools.h"
#include "base/json_text.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::api {

// What a body is checked against. Immutable while the server lives.
struct RequestLimits {
  std::string model;  // the served name; one that is neither this nor among other_models is kNotFound
  std::vector<std::string> other_models;
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  int64_t default_max_tokens = 4096;  // cap for chats that state no max_tokens
  int64_t max_choices = 128;          // n
  int64_t max_prompts = 256;          // prompts of one completions request
  SamplingParams generation_defaults;
  ChatStyle style;
  bool strict_fields = false;  // what would be ignored is kInvalidArgument
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// One body; once `stop` is set, reading it ends with kCancelled. `base` has everything that does not depend on the
// prompt; one tactus::Request per prompt comes of it.
struct ParsedRequest {
  bool chat = false;
  std::vector<Prompt> prompts;     // completions
  std::string template_variables;  // chat: the JSON object for Engine::ApplyChatTemplate
  bool add_special_tokens = true;  // completions
  Request base;                    // n, sampling, stop, priority, slo, slo_class, client, cache_salt
  std::optional<int64_t> max_tokens;
  const char* max_tokens_field = "max_tokens";  // that it comes from
  int64_t default_max_tokens = 0;               // what it gets at most without max_tokens
  bool stream = false;
  bool include_usage = false;     // stream_options.include_usage
  bool continuous_usage = false;  // stream_options.continuous_usage_stats
  bool echo = false;
  bool prompt_only = false;              // max_tokens is 0: the answer is the echoed prompt
  std::shared_ptr<const ToolSet> tools;  // chat; null: none may be called
  std::string output_param;              // the field that base.output comes from
  std::string rule_client;           // whose rules share the places where they are compiled; empty: no other client's
  FieldNames names;                  // of a translated body's fields: what is refused later is renamed by them too
  std::string echo_members;          // of a response (api/translations.h)
  std::vector<std::string> ignored;  // fields that no parser knows, and parts that were left out
};
Result<ParsedRequest> ParseCompletionRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {});
Result<ParsedRequest> ParseChatRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {});
// Bodies of /v1/responses and /v1/messages, read as the chats that ask for the same (api/translations.h). `counting`:
// of /v1/messages/count_tokens.
Result<ParsedRequest> ParseResponsesRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {});
Result<ParsedRequest> ParseMessagesRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {},
                                           bool counting = false);
// The same of a body that is a part of a JSON text which has been read.
Result<ParsedRequest> ReadCompletionRequest(const Json& body, const RequestLimits& limits);
Result<ParsedRequest> ReadChatRequest(const Json& body, const RequestLimits& limits);
Result<ParsedRequest> ReadResponsesRequest(const Json& body, const RequestLimits& limits);

// That the schemas in a body mean what is written. `rounded`: as JsonLimits has it of the text that it was read from.
Status CheckNumbers(const Json& body, const std::vector<json_text::RoundedNumber>& rounded);

// Integers beyond 64 bits in the arguments of earlier calls that came as objects: `body` gets them in quotes, in which
// templates keep all of their digits. `large`: as JsonLimits has it of the text of which `body` is the value number
// `place`.
Status KeepLargeIntegers(const std::vector<json_text::LargeInteger>& large, int64_t place, Json* body);

// The objectives that gateways put into headers: x-slo-ttft-ms, x-slo-tpot-ms and their x-llm-d- forms. The body's win.
// `name` is compared without case; other names have no effect.
Status ApplySloHeader(std::string_view name, std::string_view value, Slo* slo);

// Fills in max_tokens, now that the prompt's length is known: kInvalidArgument with the three numbers when prompt and
// output exceed the context.
Status PlaceInContext(const ParsedRequest& parsed, int64_t prompt_tokens, const RequestLimits& limits,
                      StopConditions* stop);

// The same refusal for a prompt of which only a least number of tokens is known.
Status CheckLeastTokens(const ParsedRequest& parsed, int64_t least_tokens, const RequestLimits& limits);

struct TokenizeRequest {
  bool chat = false;  // `messages` instead of `prompt`
  std::string prompt;
  std::string template_variables;
  bool add_special_tokens = true;
  bool return_token_strs = false;
  std::vector<std::string> ignored;  // as ParsedRequest::ignored
};
Result<TokenizeRequest> ParseTokenizeRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {});
Result<std::vector<TokenId>> ParseDetokenizeRequest(std::string_view body, const RequestLimits& limits,
                                                    StopToken stop = {}, std::vector<std::string>* ignored = nullptr);

}  // namespace tactus::api
