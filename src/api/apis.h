// The APIs that return generated text: how each parses a body and writes an answer and an error. Code that serves,
// routes or moves requests uses this table and knows no API by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/chat/answer.h"
#include "api/chat/parsed_request.h"

namespace tactus::api {

struct Api {
  std::string_view name;       // identifies the API between replicas
  std::string_view path;       // its route; paths that begin with it have the same error format
  std::string_view id_prefix;  // prefix of an answer's id, before the request id: "chatcmpl-"
  std::string_view stream_end;
  bool numbers_events;  // numbers the events of a stream, so a stream cannot continue on another server
  Result<ParsedRequest> (*parse)(std::string_view body, const RequestLimits& limits, StopToken stop);
  std::unique_ptr<AnswerWriter> (*writer)(const Engine& engine, const AnswerShape& shape,
                                          const AnswerIdentity& identity);
  std::string (*error_text)(int http_status, std::string_view message, std::string_view param);
  // An error within a stream, after `events` events.
  std::string (*error_event)(int http_status, std::string_view message, int64_t events);

  std::string ErrorText(const Status& status) const;
};

extern const Api kCompletionsApi, kChatApi, kResponsesApi, kMessagesApi;

// Null: there is none.
const Api* FindApi(std::string_view name);
// The API whose error format applies to this path; OpenAI's for paths of no API.
const Api& ApiOfPath(std::string_view path);
// The request id within an answer's id; empty: the id has no API's prefix.
std::string_view RequestIdOf(std::string_view answer_id);

}  // namespace tactus::api
