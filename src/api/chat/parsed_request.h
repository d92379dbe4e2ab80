// A parsed body of a generation route and the limits that it was checked against: plain data, independent of the API.
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/chat/chat_style.h"
#include "api/fields/field_names.h"
#include "api/tools/tools.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus::api {

// Limits for a body. Immutable while the server runs.
struct RequestLimits {
  std::string model;  // the served name; a name that is neither this nor in other_models gives kNotFound
  std::vector<std::string> other_models;
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  int64_t default_max_tokens = 4096;  // cap for chats without max_tokens
  int64_t max_choices = 128;          // n
  int64_t max_prompts = 256;          // prompts of one completions request
  SamplingParams generation_defaults;
  ChatStyle style;
  bool strict_fields = false;  // fields that would be ignored give kInvalidArgument
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// A parsed body. `base` has everything that does not depend on the prompt; it is copied to one tactus::Request per
// prompt.
struct ParsedRequest {
  bool chat = false;
  std::vector<Prompt> prompts;     // completions
  std::string template_variables;  // chat: the JSON object for Engine::ApplyChatTemplate
  bool add_special_tokens = true;  // completions
  Request base;                    // n, sampling, stop, priority, slo, slo_class, client, cache_salt
  std::optional<int64_t> max_tokens;
  const char* max_tokens_field = "max_tokens";  // the field that max_tokens comes from
  int64_t default_max_tokens = 0;               // cap without max_tokens
  bool stream = false;
  bool include_usage = false;     // stream_options.include_usage
  bool continuous_usage = false;  // stream_options.continuous_usage_stats
  bool echo = false;
  bool prompt_only = false;              // max_tokens is 0: the answer is the echoed prompt
  std::shared_ptr<const ToolSet> tools;  // chat; null: no tool may be called
  std::string output_param;              // the field that base.output comes from
  std::string rule_client;               // the client whose rules share compile slots; empty: shares with no other
  FieldNames names;                      // original names of a translated body's fields, also for later errors
  std::string echo_members;              // for a response object (api/responses/responses_request.h)
  std::vector<std::string> ignored;      // unknown fields, and parts that were left out
};

// Fills in max_tokens, now that the prompt's length is known: kInvalidArgument with the three numbers when prompt and
// output exceed the context.
Status PlaceInContext(const ParsedRequest& parsed, int64_t prompt_tokens, const RequestLimits& limits,
                      StopConditions* stop);

// The same check for a prompt of which only a lower bound of tokens is known.
Status CheckLeastTokens(const ParsedRequest& parsed, int64_t least_tokens, const RequestLimits& limits);

}  // namespace tactus::api
