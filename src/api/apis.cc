#include "api/apis.h"

#include "api/messages/messages_writer.h"
#include "api/paths.h"
#include "api/request_parser.h"
#include "api/responses/responses_writer.h"

namespace tactus::api {
namespace {

Result<ParsedRequest> ParseMessages(std::string_view body, const RequestLimits& limits, StopToken stop) {
  return ParseMessagesRequest(body, limits, stop);
}

std::string OpenAiError(int http_status, std::string_view message, std::string_view param) {
  return ErrorText(http_status, message, param);
}

std::string OpenAiErrorEvent(int http_status, std::string_view message, int64_t /*events*/) {
  return "data: " + ErrorText(http_status, message) + "\n\n";
}

std::string MessagesErrorEvent(int http_status, std::string_view message, int64_t /*events*/) {
  return "event: error\ndata: " + MessagesErrorText(http_status, message, {}) + "\n\n";
}

std::string ResponsesErrorEvent(int http_status, std::string_view message, int64_t events) {
  return ResponsesErrorText(http_status, message, {}, events);
}

std::unique_ptr<AnswerWriter> ForCompletions(const Engine& engine, const AnswerShape& shape,
                                             const AnswerIdentity& identity) {
  return CompletionWriterOf(engine, shape, identity, {"data: ", "\n\n"});
}

std::unique_ptr<AnswerWriter> ForResponses(const Engine& engine, const AnswerShape& shape,
                                           const AnswerIdentity& identity) {
  return std::make_unique<ResponsesWriter>(
      ResponsesForm{.id = std::string(kResponsesApi.id_prefix) + identity.request_id,
                    .created = identity.created,
                    .model = engine.model().name,
                    .echo = shape.echo_members});
}

std::unique_ptr<AnswerWriter> ForMessages(const Engine& engine, const AnswerShape& /*shape*/,
                                          const AnswerIdentity& identity) {
  return std::make_unique<MessagesWriter>(std::string(kMessagesApi.id_prefix) + identity.request_id,
                                          engine.model().name);
}

}  // namespace

const Api kCompletionsApi = {"completions",          "/v1/completions", "cmpl-",     "data: [DONE]\n\n", false,
                             ParseCompletionRequest, ForCompletions,    OpenAiError, OpenAiErrorEvent};
const Api kChatApi = {"chat",           "/v1/chat/completions", "chatcmpl-", "data: [DONE]\n\n", false,
                      ParseChatRequest, ForCompletions,         OpenAiError, OpenAiErrorEvent};
const Api kResponsesApi = {"responses", "/v1/responses",    "resp_", "", true, ParseResponsesRequest, ForResponses,
                           OpenAiError, ResponsesErrorEvent};
const Api kMessagesApi = {"messages",        "/v1/messages",    "msg_", "", false, ParseMessages, ForMessages,
                          MessagesErrorText, MessagesErrorEvent};

namespace {

constexpr const Api* kApis[] = {&kCompletionsApi, &kChatApi, &kResponsesApi, &kMessagesApi};

}  // namespace

std::string Api::ErrorText(const Status& status) const {
  return error_text(HttpStatusOf(status.code()), status.message(), status.param());
}

const Api* FindApi(std::string_view name) {
  for (const Api* api : kApis) {
    if (api->name == name) return api;
  }
  return nullptr;
}

const Api& ApiOfPath(std::string_view path) {
  const std::string canonical = CanonicalPath(path);
  for (const Api* api : kApis) {
    if (canonical.starts_with(api->path)) return *api;
  }
  return kChatApi;
}

std::string_view RequestIdOf(std::string_view answer_id) {
  for (const Api* api : kApis) {
    if (answer_id.starts_with(api->id_prefix)) return answer_id.substr(api->id_prefix.size());
  }
  return {};
}

}  // namespace tactus::api
