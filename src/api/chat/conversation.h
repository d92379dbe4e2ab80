// From a request to what the engine is asked: chat template, tokens, room in the context. Where a conversation comes
// from (a body of HTTP, a line of a batch file, a terminal) is not known here, nor how its answer travels.
//
//   body --ParseChatRequest--> ParsedRequest --PrepareConversation--> requests for Engine::Submit, and the shape of
//   the Answer (api/chat/answer.h) that their sinks feed.
//
// Any thread. Once `stop` is set, everything ends soon, with kCancelled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer.h"
#include "api/chat/request_parser.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::api {

// What requests to this engine are checked against. `default_max_tokens` as EngineOptions has it; the parsers as
// ChatStyleOf takes them.
RequestLimits LimitsOf(const Engine& engine, int64_t default_max_tokens, std::string_view tool_parser = "auto",
                       std::string_view reasoning_parser = "auto");

struct ChatMessage {
  std::string role, content;
};
// What the body {"messages": [...]} alone asks for. Text that is not UTF-8 is replaced.
ParsedRequest ChatOf(const std::vector<ChatMessage>& messages, const RequestLimits& limits);
// A text to continue, at most as long as a chat's answer.
ParsedRequest ContinuationOf(std::string text, const RequestLimits& limits);

// Whether its answer may have to follow a rule, which has to be compiled.
bool MayFollowRule(const ParsedRequest& parsed);

// The sequences that it will have in the engine.
int64_t SequenceCount(const ParsedRequest& parsed);

struct Prepared {
  std::vector<Request> requests;  // one per prompt, in the body's order: what `base` says, with prompt and max_tokens
  AnswerShape shape;
};
// What can never fit is refused here, and the engine counts it, unless the request is only looked at. `parsed.base.id`
// is the whole request's; where there are several prompts, theirs are numbered.
Result<Prepared> PrepareConversation(ParsedRequest parsed, Engine& engine, const RequestLimits& limits,
                                     StopToken stop = {}, bool count_refused = true);

// Bodies of /tokenize and /detokenize, which ask nothing of the scheduler: their answers. The body of
// /v1/messages/count_tokens likewise. *ignored: as ParsedRequest::ignored.
Result<std::string> AnswerCountTokens(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                      StopToken stop = {}, std::vector<std::string>* ignored = nullptr);
Result<std::string> AnswerTokenize(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                   StopToken stop = {}, std::vector<std::string>* ignored = nullptr);
Result<std::string> AnswerDetokenize(std::string_view body, const Engine& engine, const RequestLimits& limits,
                                     StopToken stop = {}, std::vector<std::string>* ignored = nullptr);

}  // namespace tactus::api
