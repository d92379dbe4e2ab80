#include "api/chat/parsed_request.h"

#include <algorithm>
#include <string_view>

#include "base/context_room.h"

namespace tactus::api {
namespace {

// The field of the client's own body that limits the tokens of the answer.
std::string AskedBy(const ParsedRequest& parsed) {
  const bool asked = parsed.max_tokens && !parsed.prompt_only;
  return asked ? parsed.names.Original(parsed.max_tokens_field) : std::string(ContextOverflow::kAnswer);
}

}  // namespace

Status PlaceInContext(const ParsedRequest& parsed, int64_t prompt_tokens, const RequestLimits& limits,
                      StopConditions* stop) {
  const int64_t context = limits.max_model_len;
  if (prompt_tokens < 1)
    return InvalidArgument("prompt: no tokens; give at least one", parsed.chat ? "messages" : "prompt");
  TACTUS_RETURN_IF_ERROR(CheckContext(prompt_tokens, parsed.max_tokens.value_or(1), context,
                                      parsed.chat ? "messages" : "prompt", AskedBy(parsed)));
  if (parsed.max_tokens) {
    stop->max_tokens = *parsed.max_tokens;
  } else {
    stop->max_tokens = std::min(context - prompt_tokens, parsed.default_max_tokens);
  }
  stop->min_tokens = std::min(stop->min_tokens, stop->max_tokens);
  return Status();
}

Status CheckLeastTokens(const ParsedRequest& parsed, int64_t least_tokens, const RequestLimits& limits) {
  if (least_tokens < limits.max_model_len) return Status();  // checking max_tokens needs the exact number
  const std::string field = AskedBy(parsed);
  return OverflowStatus({.prompt_tokens = least_tokens,
                         .max_tokens = parsed.max_tokens.value_or(1),
                         .context = limits.max_model_len,
                         .at_least = true,
                         .field = field},
                        parsed.chat ? "messages" : "prompt");
}

}  // namespace tactus::api
