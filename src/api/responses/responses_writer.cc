#include "api/responses/responses_writer.h"

#include <fmt/format.h>

#include <iterator>

#include "api/chat/response_text.h"
#include "api/fields/json.h"
#include "base/json.h"

namespace tactus::api {
namespace {

std::string_view CodeOf(int http_status, std::string_view message) {
  if (const std::string_view code = ErrorCodeOf(http_status, message, {}); !code.empty()) return code;
  return http_status == 429 ? "rate_limit_exceeded" : http_status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

std::string ResponsesErrorText(int http_status, std::string_view message, std::string_view param, int64_t sequence) {
  std::string out = fmt::format("event: error\ndata: {{\"type\":\"error\",\"sequence_number\":{},\"code\":\"{}\"",
                                sequence, CodeOf(http_status, message));
  AppendMember(&out, "message", WithContextLength(message));
  out += ",\"param\":";
  if (param.empty())
    out += "null";
  else
    AppendJsonString(&out, param);
  return out + "}\n\n";
}

void ResponsesWriter::OpenEvent(std::string* out, std::string_view type) {
  fmt::format_to(std::back_inserter(*out), "event: {}\ndata: {{\"type\":\"{}\",\"sequence_number\":{}", type, type,
                 sequence_++);
}

void ResponsesWriter::CloseEvent(std::string* out) const {
  *out += "}\n\n";
}

void ResponsesWriter::AppendPlace(std::string* out) const {
  AppendMember(out, "item_id", items_.back().id);
  fmt::format_to(std::back_inserter(*out), ",\"output_index\":{}", items_.size() - 1);
}

void ResponsesWriter::AppendContentPart(std::string* out, const Item& item) const {
  const bool reasoning = item.kind == AnswerPart::Kind::kReasoning;
  *out += reasoning ? "{\"type\":\"reasoning_text\"" : "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[]";
  AppendMember(out, "text", item.text);
  *out += '}';
}

void ResponsesWriter::AppendItem(std::string* out, const Item& item, ItemStatus status) const {
  const bool begun = status != ItemStatus::kInProgress;
  switch (item.kind) {
    case AnswerPart::Kind::kCallBegin:
    case AnswerPart::Kind::kCallArguments:
      *out += "{\"type\":\"function_call\"";
      AppendMember(out, "call_id", item.call_id);
      AppendMember(out, "name", item.name);
      AppendMember(out, "arguments", item.text);
      break;
    case AnswerPart::Kind::kReasoning:
      *out += "{\"type\":\"reasoning\",\"summary\":[],\"content\":[";
      if (begun) AppendContentPart(out, item);
      *out += ']';
      break;
    case AnswerPart::Kind::kText:
      *out += "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[";
      if (begun) AppendContentPart(out, item);
      *out += ']';
      break;
  }
  AppendMember(out, "id", item.id);
  *out += status == ItemStatus::kInProgress  ? ",\"status\":\"in_progress\"}"
          : status == ItemStatus::kCompleted ? ",\"status\":\"completed\"}"
                                             : ",\"status\":\"incomplete\"}";
}

// The whole object in its current state, with every item that has ended.
void ResponsesWriter::AppendResponse(std::string* out, std::string_view status, const AnswerUsage* usage,
                                     std::string_view error, std::string_view schedule) const {
  *out += "{\"id\":";
  AppendJsonString(out, form_.id);
  fmt::format_to(std::back_inserter(*out), ",\"object\":\"response\",\"created_at\":{},\"status\":\"{}\"",
                 form_.created, status);
  *out += ",\"error\":";
  if (error.empty())
    *out += "null";
  else
    *out += error;
  *out += status == "incomplete" ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                                 : ",\"incomplete_details\":null";
  AppendMember(out, "model", form_.model);
  *out += ",\"output\":[";
  for (size_t i = 0; i < items_.size(); ++i) {
    if (i > 0) *out += ',';
    const bool last = i + 1 == items_.size();
    AppendItem(out, items_[i], last && (cut_ || open_) ? ItemStatus::kIncomplete : ItemStatus::kCompleted);
  }
  *out += ']';
  *out += form_.echo;
  *out += ",\"usage\":";
  if (usage == nullptr) {
    *out += "null";
  } else {
    fmt::format_to(std::back_inserter(*out),
                   "{{\"input_tokens\":{},\"input_tokens_details\":{{\"cached_tokens\":{}}},"
                   "\"output_tokens\":{},\"output_tokens_details\":{{\"reasoning_tokens\":{}}},\"total_tokens\":{}}}",
                   usage->prompt_tokens, usage->cached_tokens, usage->completion_tokens, usage->reasoning_tokens,
                   usage->prompt_tokens + usage->completion_tokens);
  }
  if (!schedule.empty()) {
    *out += ",\"tactus_explain\":";
    *out += schedule;
  }
  *out += '}';
}

void ResponsesWriter::AppendBegin(std::string* out, int32_t /*index*/, const EchoedPrompt* /*echo*/,
                                  const AnswerUsage& /*usage*/) {
  streams_ = begun_ = true;
  for (const char* type : {"response.created", "response.in_progress"}) {
    OpenEvent(out, type);
    *out += ",\"response\":";
    AppendResponse(out, "in_progress", nullptr, {}, {});
    CloseEvent(out);
  }
}

void ResponsesWriter::Open(const AnswerPart& part, std::string* out) {
  Item item;
  item.kind = part.kind == AnswerPart::Kind::kCallArguments ? AnswerPart::Kind::kCallBegin : part.kind;
  const char* prefix = item.kind == AnswerPart::Kind::kText        ? "msg"
                       : item.kind == AnswerPart::Kind::kReasoning ? "rs"
                                                                   : "fc";
  const std::string_view request = std::string_view(form_.id).substr(form_.id.find('_') + 1);
  item.id = fmt::format("{}_{}_{}", prefix, request, items_.size());
  item.name = part.name;
  item.call_id = part.id;
  items_.push_back(std::move(item));
  open_ = true;
  if (!streams_) return;
  OpenEvent(out, "response.output_item.added");
  fmt::format_to(std::back_inserter(*out), ",\"output_index\":{},\"item\":", items_.size() - 1);
  AppendItem(out, items_.back(), ItemStatus::kInProgress);
  CloseEvent(out);
  if (items_.back().kind == AnswerPart::Kind::kCallBegin) return;
  OpenEvent(out, "response.content_part.added");
  AppendPlace(out);
  *out += ",\"content_index\":0,\"part\":";
  AppendContentPart(out, items_.back());
  CloseEvent(out);
}

void ResponsesWriter::Close(ItemStatus status, std::string* out) {
  if (!open_) return;
  open_ = false;
  if (!streams_) return;
  const Item& item = items_.back();
  if (item.kind == AnswerPart::Kind::kCallBegin) {
    OpenEvent(out, "response.function_call_arguments.done");
    AppendPlace(out);
    AppendMember(out, "name", item.name);
    AppendMember(out, "arguments", item.text);
    CloseEvent(out);
  } else {
    const bool reasoning = item.kind == AnswerPart::Kind::kReasoning;
    OpenEvent(out, reasoning ? "response.reasoning_text.done" : "response.output_text.done");
    AppendPlace(out);
    *out += reasoning ? ",\"content_index\":0" : ",\"content_index\":0,\"logprobs\":[]";
    AppendMember(out, "text", item.text);
    CloseEvent(out);
    OpenEvent(out, "response.content_part.done");
    AppendPlace(out);
    *out += ",\"content_index\":0,\"part\":";
    AppendContentPart(out, item);
    CloseEvent(out);
  }
  OpenEvent(out, "response.output_item.done");
  fmt::format_to(std::back_inserter(*out), ",\"output_index\":{},\"item\":", items_.size() - 1);
  AppendItem(out, item, status);
  CloseEvent(out);
}

void ResponsesWriter::Take(const AnswerPart& part, std::string* out) {
  const bool call = part.kind == AnswerPart::Kind::kCallArguments;
  const AnswerPart::Kind kind = call ? AnswerPart::Kind::kCallBegin : part.kind;
  const bool goes_on = open_ && items_.back().kind == kind && part.kind != AnswerPart::Kind::kCallBegin;
  if (!goes_on) {
    Close(ItemStatus::kCompleted, out);
    Open(part, out);
  }
  if (part.text.empty()) return;
  items_.back().text += part.text;
  if (!streams_) return;
  const bool reasoning = part.kind == AnswerPart::Kind::kReasoning;
  OpenEvent(out, call        ? "response.function_call_arguments.delta"
                 : reasoning ? "response.reasoning_text.delta"
                             : "response.output_text.delta");
  AppendPlace(out);
  if (!call) *out += reasoning ? ",\"content_index\":0" : ",\"content_index\":0,\"logprobs\":[]";
  AppendMember(out, "delta", part.text);
  CloseEvent(out);
}

void ResponsesWriter::AppendDelta(std::string* out, int32_t /*index*/, const ChoiceDelta& delta,
                                  const AnswerUsage& /*usage*/) {
  for (const AnswerPart& part : delta.parts) Take(part, out);
  if (delta.finish == FinishReason::kNone) return;
  finish_ = delta.finish;
  // A stop string may have cut a call off, which then must not be run.
  const bool in_call = !items_.empty() && items_.back().kind == AnswerPart::Kind::kCallBegin;
  cut_ =
      finish_ == FinishReason::kLength || (in_call && !delta.stop_string.empty() && !Json::accept(items_.back().text));
  // An answer without text is a message without text.
  if (items_.empty()) Open(AnswerPart(), out);
  Close(cut_ ? ItemStatus::kIncomplete : ItemStatus::kCompleted, out);
}

void ResponsesWriter::AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) {
  OpenEvent(out, fmt::format("response.{}", EndStatus()));
  *out += ",\"response\":";
  AppendResponse(out, EndStatus(), &usage, {}, schedule);
  CloseEvent(out);
}

void ResponsesWriter::AppendError(std::string* out, const Status& status) {
  const int http_status = HttpStatusOf(status.code());
  if (!begun_) {
    *out += ResponsesErrorText(http_status, status.message(), status.param(), sequence_++);
    return;
  }
  std::string error = fmt::format("{{\"code\":\"{}\"", CodeOf(http_status, status.message()));
  AppendMember(&error, "message", WithContextLength(status.message()));
  error += '}';
  OpenEvent(out, "response.failed");
  *out += ",\"response\":";
  AppendResponse(out, "failed", nullptr, error, {});
  CloseEvent(out);
}

std::string ResponsesWriter::Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                                   std::string_view schedule) {
  const ChoiceText& choice = choices.front();
  std::string out;
  AppendDelta(
      &out, 0,
      {.parts = choice.parts, .logprobs = choice.logprobs, .finish = choice.finish, .stop_string = choice.stop_string},
      usage);
  AppendResponse(&out, EndStatus(), &usage, {}, schedule);
  return out;
}

}  // namespace tactus::api
