#include "api/messages/messages_writer.h"

#include <fmt/format.h>

#include <iterator>

#include "api/chat/history.h"
#include "api/chat/response_text.h"
#include "api/fields/json.h"
#include "base/context_room.h"
#include "base/json.h"

namespace tactus::api {
namespace {

void OpenEvent(std::string* out, std::string_view type) {
  fmt::format_to(std::back_inserter(*out), "event: {}\ndata: {{\"type\":\"{}\"", type, type);
}

void CloseEvent(std::string* out) {
  *out += "}\n\n";
}

// input_tokens are those that were not cached. How many of them the cache keeps is unknown, so that figure is left out.
void AppendUsage(std::string* out, const AnswerUsage& usage) {
  fmt::format_to(std::back_inserter(*out),
                 "{{\"input_tokens\":{},\"cache_read_input_tokens\":{},\"output_tokens\":{}}}",
                 usage.prompt_tokens - usage.cached_tokens, usage.cached_tokens, usage.completion_tokens);
}

void AppendCall(std::string* out, const AnswerPart& part, std::string_view input) {
  *out += "{\"type\":\"tool_use\"";
  AppendMember(out, "id", part.id);
  AppendMember(out, "name", part.name);
  *out += ",\"input\":";
  *out += input;
  *out += '}';
}

// The arguments of a call as an object. A call that was cut off has its incomplete text under kIncompleteKey.
std::string InputOf(const std::string& arguments) {
  if (arguments.empty()) return "{}";
  if (const auto parsed = ParseJson(arguments); parsed.ok() && parsed->is_object()) return arguments;
  std::string input = fmt::format("{{\"{}\":", kIncompleteKey);
  AppendJsonString(&input, arguments);
  return input + "}";
}

// A prompt that does not fit gets the message that clients of that API look for.
std::string InAnthropicsWords(std::string_view message) {
  const auto overflow = OverflowIn(message);
  if (!overflow) return std::string(message);
  if (overflow->room() < 1) {
    return fmt::format("prompt is too long: {} tokens > {} maximum; shorten it", overflow->prompt_tokens,
                       overflow->context - 1);
  }
  return fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}; give max_tokens up to {}",
                     overflow->prompt_tokens, overflow->max_tokens, overflow->context, overflow->room());
}

}  // namespace

std::string MessagesErrorText(int http_status, std::string_view message, std::string_view /*param*/) {
  const char* type = http_status == 401   ? "authentication_error"
                     : http_status == 403 ? "permission_error"
                     : http_status == 404 ? "not_found_error"
                     : http_status == 413 ? "request_too_large"
                     : http_status == 429 ? "rate_limit_error"
                     : http_status == 503 ? "overloaded_error"
                     : http_status == 504 ? "timeout_error"
                     : http_status >= 500 ? "api_error"
                                          : "invalid_request_error";
  std::string out = fmt::format("{{\"type\":\"error\",\"error\":{{\"type\":\"{}\"", type);
  AppendMember(&out, "message", InAnthropicsWords(message));
  return out + "}}";
}

void MessagesWriter::AppendHead(std::string* out) const {
  *out += "{\"id\":";
  AppendJsonString(out, id_);
  *out += ",\"type\":\"message\",\"role\":\"assistant\"";
  AppendMember(out, "model", model_);
}

void MessagesWriter::AppendStop(std::string* out) const {
  *out += "\"stop_reason\":";
  *out += finish_ == FinishReason::kLength ? "\"max_tokens\""
          : called_                        ? "\"tool_use\""
          : !stop_string_.empty()          ? "\"stop_sequence\""
                                           : "\"end_turn\"";
  *out += ",\"stop_sequence\":";
  if (stop_string_.empty() || called_)
    *out += "null";
  else
    AppendJsonString(out, stop_string_);
}

void MessagesWriter::AppendBegin(std::string* out, int32_t /*index*/, const EchoedPrompt* /*echo*/,
                                 const AnswerUsage& usage) {
  OpenEvent(out, "message_start");
  *out += ",\"message\":";
  AppendHead(out);
  *out += ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":";
  AppendUsage(out, usage);
  *out += '}';
  CloseEvent(out);
}

void MessagesWriter::Open(const AnswerPart& part, std::string* out) {
  open_ = true;
  kind_ = part.kind;
  OpenEvent(out, "content_block_start");
  fmt::format_to(std::back_inserter(*out), ",\"index\":{},\"content_block\":", blocks_++);
  if (part.kind == AnswerPart::Kind::kText)
    *out += "{\"type\":\"text\",\"text\":\"\"}";
  else if (part.kind == AnswerPart::Kind::kReasoning)
    *out += "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}";
  else
    AppendCall(out, part, "{}");
  CloseEvent(out);
}

void MessagesWriter::Close(std::string* out) {
  if (!open_) return;
  open_ = false;
  OpenEvent(out, "content_block_stop");
  fmt::format_to(std::back_inserter(*out), ",\"index\":{}", blocks_ - 1);
  CloseEvent(out);
}

void MessagesWriter::AppendDelta(std::string* out, int32_t /*index*/, const ChoiceDelta& delta,
                                 const AnswerUsage& /*usage*/) {
  for (const AnswerPart& part : delta.parts) {
    const bool arguments = part.kind == AnswerPart::Kind::kCallArguments;
    const bool goes_on = open_ && part.kind != AnswerPart::Kind::kCallBegin &&
                         kind_ == (arguments ? AnswerPart::Kind::kCallBegin : part.kind);
    if (!goes_on) {
      Close(out);
      Open(part, out);
    }
    if (part.text.empty()) continue;
    OpenEvent(out, "content_block_delta");
    fmt::format_to(std::back_inserter(*out), ",\"index\":{},\"delta\":", blocks_ - 1);
    *out += arguments                                   ? "{\"type\":\"input_json_delta\",\"partial_json\":"
            : part.kind == AnswerPart::Kind::kReasoning ? "{\"type\":\"thinking_delta\",\"thinking\":"
                                                        : "{\"type\":\"text_delta\",\"text\":";
    AppendJsonString(out, part.text);
    *out += '}';
    CloseEvent(out);
  }
  if (delta.finish == FinishReason::kNone) return;
  finish_ = delta.finish;
  called_ = delta.called;
  stop_string_ = delta.stop_string;
  Close(out);
}

void MessagesWriter::AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) {
  OpenEvent(out, "message_delta");
  *out += ",\"delta\":{";
  AppendStop(out);
  *out += "},\"usage\":";
  AppendUsage(out, usage);
  if (!schedule.empty()) {
    *out += ",\"tactus_explain\":";
    *out += schedule;
  }
  CloseEvent(out);
  OpenEvent(out, "message_stop");
  CloseEvent(out);
}

void MessagesWriter::AppendError(std::string* out, const Status& status) {
  *out += "event: error\ndata: " + MessagesErrorText(HttpStatusOf(status.code()), status.message(), {}) + "\n\n";
}

std::string MessagesWriter::Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                                  std::string_view schedule) {
  const ChoiceText& choice = choices.front();
  finish_ = choice.finish;
  called_ = CallsToRun(choice.parts, choice.stop_string);
  stop_string_ = choice.stop_string;
  std::string out;
  AppendHead(&out);
  out += ",\"content\":[";
  bool first = true;
  for (const AnswerPart& part : choice.parts) {
    if (part.kind == AnswerPart::Kind::kCallArguments) continue;  // written with its call
    if (!first) out += ',';
    first = false;
    if (part.kind == AnswerPart::Kind::kCallBegin) {
      AppendCall(&out, part, InputOf(ArgumentsOf(choice.parts, part.call)));
    } else if (part.kind == AnswerPart::Kind::kReasoning) {
      out += "{\"type\":\"thinking\",\"signature\":\"\"";
      AppendMember(&out, "thinking", part.text);
      out += '}';
    } else {
      out += "{\"type\":\"text\"";
      AppendMember(&out, "text", part.text);
      out += '}';
    }
  }
  out += "],";
  AppendStop(&out);
  out += ",\"usage\":";
  AppendUsage(&out, usage);
  if (!schedule.empty()) {
    out += ",\"tactus_explain\":";
    out += schedule;
  }
  return out + "}";
}

}  // namespace tactus::api
