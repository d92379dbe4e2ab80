#include "api/response_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "api/json.h"

namespace tactus::api {
namespace {

constexpr float kLowestLogprob = -9999.0f;  // JSON has no infinity

void AppendNumber(std::string* out, int64_t value) {
  fmt::format_to(std::back_inserter(*out), "{}", value);
}
void AppendLogprob(std::string* out, float value) {
  fmt::format_to(std::back_inserter(*out), "{}",
                 std::isfinite(value) ? std::max(value, kLowestLogprob) : kLowestLogprob);
}

void AppendUsageObject(std::string* out, const Usage& usage) {
  fmt::format_to(std::back_inserter(*out),
                 "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":{{"
                 "\"cached_tokens\":{}}}}}",
                 usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens,
                 usage.cached_tokens);
}

void AppendScheduleMember(std::string* out, std::string_view schedule) {
  if (schedule.empty()) return;
  *out += ",\"tactus_explain\":";
  *out += schedule;
}

// Characters that this token begins: continuation bytes belong to the token that has the first byte.
int64_t CodePoints(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
}

}  // namespace

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kTooLarge:
      return 413;
    case StatusCode::kTooManyRequests:
      return 429;
    case StatusCode::kResourceExhausted:
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kCancelled:
      return 499;
    case StatusCode::kDeadlineExceeded:
      return 408;
    case StatusCode::kDataLoss:
    case StatusCode::kInternal:
      return 500;
  }
  return 500;
}

std::string ErrorText(int http_status, std::string_view message, std::string_view param) {
  const char* type = http_status == 401   ? "authentication_error"
                     : http_status == 404 ? "not_found_error"
                     : http_status == 429 ? "rate_limit_error"
                     : http_status == 503 ? "overloaded_error"
                     : http_status >= 500 ? "server_error"
                                          : "invalid_request_error";
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(&out, message);
  out += ",\"type\":";
  AppendJsonString(&out, type);
  out += ",\"param\":";
  if (param.empty())
    out += "null";
  else
    AppendJsonString(&out, param);
  out += ",\"code\":";
  AppendNumber(&out, http_status);
  out += "}}";
  return out;
}

std::string ErrorText(const Status& status) {
  return ErrorText(HttpStatusOf(status.code()), status.message(), status.param());
}

std::string_view FinishText(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    default:
      return {};
  }
}

AnswerWriter::AnswerWriter(const Engine& engine, AnswerStyle style, std::string id, int64_t created,
                           std::string fingerprint)
    : engine_(engine), style_(std::move(style)), id_(std::move(id)) {
  std::string rest = fmt::format("\",\"created\":{},\"model\":", created);
  AppendJsonString(&rest, engine.model().name);
  rest += ",\"system_fingerprint\":";
  AppendJsonString(&rest, fingerprint);
  rest += ",\"choices\":[";
  std::string head = "{\"id\":";
  AppendJsonString(&head, id_);
  head += ",\"object\":\"";
  whole_head_ = head + (style_.chat ? "chat.completion" : "text_completion") + rest;
  chunk_head_ = style_.frame.before + head + (style_.chat ? "chat.completion.chunk" : "text_completion") + rest;
}

void AnswerWriter::OpenChunk(std::string* out, int32_t index) const {
  *out += chunk_head_;
  *out += "{\"index\":";
  AppendNumber(out, index);
}

void AnswerWriter::CloseChunk(std::string* out, const Usage* usage) const {
  *out += "}]";
  if (usage != nullptr) {
    *out += ",\"usage\":";
    AppendUsageObject(out, *usage);
  } else if (style_.usage_in_chunks) {
    *out += ",\"usage\":null";
  }
  *out += '}';
  *out += style_.frame.after;
}

void AnswerWriter::AppendFinish(std::string* out, FinishReason finish, std::string_view stop_string) const {
  const std::string_view reason = FinishText(finish);
  *out += ",\"finish_reason\":";
  if (reason.empty())
    *out += "null";
  else
    AppendJsonString(out, reason);
  if (!stop_string.empty()) {
    *out += ",\"stop_reason\":";
    AppendJsonString(out, stop_string);
  }
}

void AnswerWriter::AppendChatLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows) const {
  auto entry = [&](const TokenLogprob& item) {
    const std::string bytes = engine_.TokenBytes(item.token);
    *out += "{\"token\":";
    AppendJsonString(out, engine_.TokenString(item.token));
    *out += ",\"logprob\":";
    AppendLogprob(out, item.logprob);
    *out += ",\"bytes\":[";
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i > 0) out->push_back(',');
      AppendNumber(out, static_cast<unsigned char>(bytes[i]));
    }
    *out += "]";
  };
  *out += "{\"content\":[";
  bool first = true;
  for (const auto& row : rows) {
    if (row.empty()) continue;
    if (!first) out->push_back(',');
    first = false;
    entry(row.front());
    *out += ",\"top_logprobs\":[";
    const size_t count = std::min(row.size() - 1, static_cast<size_t>(style_.logprobs));
    for (size_t i = 1; i <= count; ++i) {
      if (i > 1) out->push_back(',');
      entry(row[i]);
      out->push_back('}');
    }
    *out += "]}";
  }
  *out += "],\"refusal\":null}";
}

void AnswerWriter::AppendLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows,
                                  int64_t* text_offset) const {
  *out += ",\"logprobs\":";
  if (style_.logprobs < 0) {
    *out += "null";
    return;
  }
  if (style_.chat) return AppendChatLogprobs(out, rows);
  std::string offsets, tokens, chosen, tops;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    if (row.empty()) continue;
    if (!tokens.empty())
      for (std::string* list : {&offsets, &tokens, &chosen, &tops}) list->push_back(',');
    AppendNumber(&offsets, *text_offset);
    *text_offset += CodePoints(engine_.TokenBytes(row.front().token));
    AppendJsonString(&tokens, engine_.TokenString(row.front().token));
    if (std::isnan(row.front().logprob)) {  // the first token of an echoed prompt has none
      chosen += "null";
      tops += "null";
      continue;
    }
    AppendLogprob(&chosen, row.front().logprob);
    tops.push_back('{');
    std::vector<std::string> seen;  // different tokens may have the same text; the likelier one is kept
    for (size_t k = 1; k <= row.size(); ++k) {
      const TokenLogprob& item = k < row.size() ? row[k] : row.front();
      const std::string text = engine_.TokenString(item.token);
      if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
      if (!seen.empty()) tops.push_back(',');
      AppendJsonString(&tops, text);
      tops.push_back(':');
      AppendLogprob(&tops, item.logprob);
      seen.push_back(text);
    }
    tops.push_back('}');
  }
  if (style_.logprobs == 0) tops.clear();
  *out += "{\"text_offset\":[" + offsets + "],\"token_logprobs\":[" + chosen + "],\"tokens\":[" + tokens +
          "],\"top_logprobs\":" + (style_.logprobs == 0 ? "null" : "[" + tops + "]") + "}";
}

void AnswerWriter::AppendRole(std::string* out, int32_t index) const {
  OpenChunk(out, index);
  *out += ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null";
  CloseChunk(out, nullptr);
}

void AnswerWriter::AppendDelta(std::string* out, int32_t index, const TokenDelta& delta, int64_t* text_offset,
                               const Usage* usage) const {
  OpenChunk(out, index);
  if (style_.chat) {
    *out += ",\"delta\":{";
    if (!delta.text.empty() || delta.finish == FinishReason::kNone) {
      *out += "\"content\":";
      AppendJsonString(out, delta.text);
    }
    out->push_back('}');
  } else {
    *out += ",\"text\":";
    AppendJsonString(out, delta.text);
  }
  if (style_.logprobs >= 0 && delta.logprobs.empty())
    *out += ",\"logprobs\":null";
  else
    AppendLogprobs(out, delta.logprobs, text_offset);
  AppendFinish(out, delta.finish, delta.stop_string);
  CloseChunk(out, usage);
}

void AnswerWriter::AppendEcho(std::string* out, int32_t index, std::string_view text,
                              const std::vector<std::vector<TokenLogprob>>& rows, int64_t* text_offset) const {
  OpenChunk(out, index);
  *out += ",\"text\":";
  AppendJsonString(out, text);
  AppendLogprobs(out, rows, text_offset);
  *out += ",\"finish_reason\":null";
  CloseChunk(out, nullptr);
}

void AnswerWriter::AppendLast(std::string* out, const Usage* usage, std::string_view schedule) const {
  *out += chunk_head_;
  *out += ']';
  if (usage != nullptr) {
    *out += ",\"usage\":";
    AppendUsageObject(out, *usage);
  }
  AppendScheduleMember(out, schedule);
  *out += '}';
  *out += style_.frame.after;
}

std::string AnswerWriter::Whole(const std::vector<ChoiceText>& choices, const Usage& usage,
                                std::string_view schedule) const {
  std::string out = whole_head_;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out.push_back(',');
    out += "{\"index\":";
    AppendNumber(&out, static_cast<int64_t>(i));
    out += style_.chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":";
    AppendJsonString(&out, choices[i].text);
    if (style_.chat) out += ",\"refusal\":null}";
    int64_t text_offset = 0;
    AppendLogprobs(&out, choices[i].logprobs, &text_offset);
    AppendFinish(&out, choices[i].finish, choices[i].stop_string);
    out.push_back('}');
  }
  out += "],\"usage\":";
  AppendUsageObject(&out, usage);
  AppendScheduleMember(&out, schedule);
  out.push_back('}');
  return out;
}

std::string ModelText(const ModelInfo& model, int64_t created) {
  std::string out = "{\"id\":";
  AppendJsonString(&out, model.name);
  fmt::format_to(std::back_inserter(out),
                 ",\"object\":\"model\",\"created\":{},\"owned_by\":\"tactus\",\"root\":", created);
  AppendJsonString(&out, model.name);
  fmt::format_to(std::back_inserter(out), ",\"parent\":null,\"max_model_len\":{}}}", model.max_model_len);
  return out;
}

std::string ModelsText(const ModelInfo& model, int64_t created) {
  return "{\"object\":\"list\",\"data\":[" + ModelText(model, created) + "]}";
}

std::string TokenizeText(const Engine& engine, const std::vector<TokenId>& tokens, bool with_strings) {
  std::string out =
      fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":[", tokens.size(), engine.model().max_model_len);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendNumber(&out, tokens[i]);
  }
  out += "],\"token_strs\":";
  if (with_strings) {
    out.push_back('[');
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out.push_back(',');
      AppendJsonString(&out, engine.TokenString(tokens[i]));
    }
    out.push_back(']');
  } else {
    out += "null";
  }
  out.push_back('}');
  return out;
}

std::string DetokenizeText(const std::string& text) {
  std::string out = "{\"prompt\":";
  AppendJsonString(&out, text);
  out.push_back('}');
  return out;
}

}  // namespace tactus::api
