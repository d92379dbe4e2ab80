// Converts a parsed request to engine requests: chat template, tokens, limit of the context. Independent of the source
// of a conversation (an HTTP body, a line of a batch file, a terminal) and of how its answer is delivered.
//
//   body --ParseChatRequest--> ParsedRequest --PrepareConversation--> requests for Engine::Submit, and the shape of
//   the Answer (api/chat/answer.h) that their sinks feed.
//
// Any thread. Once `stop` is set, every function soon returns kCancelled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/answer.h"
#include "api/chat/parsed_request.h"
#include "tactus/engine.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::api {

// The limits for requests to this engine. `default_max_tokens` as in EngineOptions; the parser names as for
// ChatStyleOf.
RequestLimits LimitsOf(const Engine& engine, int64_t default_max_tokens, std::string_view tool_parser = "auto",
                       std::string_view reasoning_parser = "auto");

struct ChatMessage {
  std::string role, content;
};
// The request of a body with only {"messages": [...]}. Text that is not UTF-8 is replaced.
ParsedRequest ChatOf(const std::vector<ChatMessage>& messages, const RequestLimits& limits);
// A request to continue a text, with the default length limit of chats.
ParsedRequest ContinuationOf(std::string text, const RequestLimits& limits);

// Whether the answer may need an output rule, which must be compiled.
bool MayFollowRule(const ParsedRequest& parsed);

// The number of sequences that the request will have in the engine.
int64_t SequenceCount(const ParsedRequest& parsed);

struct Prepared {
  std::vector<Request> requests;  // one per prompt, in the body's order: `base` with prompt and max_tokens
  AnswerShape shape;
};
// Rejects a prompt that can never fit; the engine counts it as refused if `count_refused`. `parsed.base.id` is the id
// of the whole request; several prompts get numbered ids.
Result<Prepared> PrepareConversation(ParsedRequest parsed, Engine& engine, const RequestLimits& limits,
                                     StopToken stop = {}, bool count_refused = true);

// The tokens of a chat's prompt. `variables`: as ParsedRequest::template_variables.
Result<std::vector<TokenId>> ChatTokens(const Engine& engine, const std::string& variables, StopToken stop = {});

}  // namespace tactus::api
