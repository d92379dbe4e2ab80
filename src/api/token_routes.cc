#include "api/token_routes.h"

#include <fmt/format.h>

#include "api/chat/conversation.h"
#include "api/chat/response_text.h"
#include "api/request_parser.h"

namespace tactus::api {

Result<std::string> AnswerCountTokens(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                      StopToken stop, std::vector<std::string>* ignored) {
  TACTUS_ASSIGN_OR_RETURN(const ParsedRequest parsed, ParseMessagesRequest(body, limits, stop, true));
  if (ignored != nullptr) *ignored = parsed.ignored;
  TACTUS_ASSIGN_OR_RETURN(const auto tokens, ChatTokens(engine, parsed.template_variables, stop));
  return fmt::format("{{\"input_tokens\":{}}}", tokens.size());
}

Result<std::string> AnswerTokenize(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                   StopToken stop, std::vector<std::string>* ignored) {
  TACTUS_ASSIGN_OR_RETURN(const TokenizeRequest parsed, ParseTokenizeRequest(body, limits, stop));
  if (ignored != nullptr) *ignored = parsed.ignored;
  std::vector<TokenId> tokens;
  if (parsed.chat) {
    TACTUS_ASSIGN_OR_RETURN(tokens, ChatTokens(engine, parsed.template_variables, stop));
  } else {
    tokens = engine.Tokenize(parsed.prompt, parsed.add_special_tokens, stop);
    if (stop.stopped()) return Status(StatusCode::kCancelled, "the request is over");
  }
  return TokenizeText(engine, tokens, parsed.return_token_strs);
}

Result<std::string> AnswerDetokenize(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                     StopToken stop, std::vector<std::string>* ignored) {
  TACTUS_ASSIGN_OR_RETURN(const auto tokens, ParseDetokenizeRequest(body, limits, stop, ignored));
  return DetokenizeText(engine.Detokenize(tokens));
}

}  // namespace tactus::api
