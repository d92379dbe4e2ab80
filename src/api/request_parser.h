// Parses JSON bodies of generation routes, /tokenize and /detokenize to plain data, with every field checked for type
// and range. Uses no tokeniser and no engine: PlaceInContext checks what depends on the prompt's length. Parsing ends
// with kCancelled once `stop` is set. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat/parsed_request.h"
#include "base/json.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::api {

Result<ParsedRequest> ParseCompletionRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {});
Result<ParsedRequest> ParseChatRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {});
// Bodies of /v1/responses and /v1/messages, parsed as equivalent chats (api/chat/translation.h). `counting`: the body
// is for /v1/messages/count_tokens.
Result<ParsedRequest> ParseResponsesRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {});
Result<ParsedRequest> ParseMessagesRequest(std::string_view body, const RequestLimits& limits, StopToken stop = {},
                                           bool counting = false);
// As above, for a body that is part of a parsed JSON text.
Result<ParsedRequest> ReadCompletionRequest(const Json& body, const RequestLimits& limits);
Result<ParsedRequest> ReadChatRequest(const Json& body, const RequestLimits& limits);
Result<ParsedRequest> ReadResponsesRequest(const Json& body, const RequestLimits& limits);

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
