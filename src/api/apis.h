// The APIs that ask for generated text: how a body of each is read, how its answer and its errors are written. Whoever
// serves, routes or moves requests asks this table and knows no API by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/chat/answer.h"
#include "api/chat/request_parser.h"

namespace tactus::api {

struct Api {
  std::string_view name;       // between replicas
  std::string_view path;       // its route; what begins with it has the same form of errors
  std::string_view id_prefix;  // of an answer's id, before the request's: "chatcmpl-"
  std::string_view stream_end;
  bool numbers_events;  // of a stream, which therefore cannot go on elsewhere
  Result<ParsedRequest> (*parse)(std::string_view body, const RequestLimits& limits, StopToken stop);
  std::unique_ptr<AnswerWriter> (*writer)(const Engine& engine, const AnswerShape& shape,
                                          const AnswerIdentity& identity);
  std::string (*error_text)(int http_status, std::string_view message, std::string_view param);
  // In the midst of a stream, after `events` events.
  std::string (*error_event)(int http_status, std::string_view message, int64_t events);

  std::string ErrorText(const Status& status) const;
};

extern const Api kCompletionsApi, kChatApi, kResponsesApi, kMessagesApi;

// Null: there is none.
const Api* FindApi(std::string_view name);
// The one whose errors this path has; of paths of no API OpenAI's.
const Api& ApiOfPath(std::string_view path);
// The request's id in an answer's; empty: it has no prefix of any API.
std::string_view RequestIdOf(std::string_view answer_id);

}  // namespace tactus::api
