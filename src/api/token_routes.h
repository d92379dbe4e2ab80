// Answers of the routes that only count or convert tokens and do not use the scheduler. Any thread. Once `stop` is set,
// every function soon returns kCancelled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat/parsed_request.h"
#include "tactus/engine.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::api {

// The answers to bodies of /v1/messages/count_tokens, /tokenize and /detokenize. *ignored: as ParsedRequest::ignored.
Result<std::string> AnswerCountTokens(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                      StopToken stop = {}, std::vector<std::string>* ignored = nullptr);
Result<std::string> AnswerTokenize(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                   StopToken stop = {}, std::vector<std::string>* ignored = nullptr);
Result<std::string> AnswerDetokenize(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                     StopToken stop = {}, std::vector<std::string>* ignored = nullptr);

}  // namespace tactus::api
