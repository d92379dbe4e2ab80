#include "api/chat/response_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "api/fields/json.h"
#include "base/context_room.h"
#include "base/json.h"
#include "base/utf8.h"

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

// Completions do not parse reasoning, so they have no count of it.
void AppendUsageObject(std::string* out, const AnswerUsage& usage, bool chat) {
  fmt::format_to(std::back_inserter(*out),
                 "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":{{"
                 "\"cached_tokens\":{}}}",
                 usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens,
                 usage.cached_tokens);
  if (chat) {
    fmt::format_to(std::back_inserter(*out), ",\"completion_tokens_details\":{{\"reasoning_tokens\":{}}}",
                   usage.reasoning_tokens);
  }
  out->push_back('}');
}

void AppendScheduleMember(std::string* out, std::string_view schedule) {
  if (schedule.empty()) return;
  *out += ",\"tactus_explain\":";
  *out += schedule;
}

// One part as a member of a chat chunk's delta.
void AppendMember(std::string* out, const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::kText:
      *out += "\"content\":";
      return AppendJsonString(out, part.text);
    case AnswerPart::Kind::kReasoning:
      *out += "\"reasoning_content\":";
      return AppendJsonString(out, part.text);
    case AnswerPart::Kind::kCallBegin:
      fmt::format_to(std::back_inserter(*out), "\"tool_calls\":[{{\"index\":{},\"id\":", part.call);
      AppendJsonString(out, part.id);
      *out += ",\"type\":\"function\",\"function\":{\"name\":";
      AppendJsonString(out, part.name);
      *out += ",\"arguments\":\"\"}}]";
      return;
    case AnswerPart::Kind::kCallArguments:
      fmt::format_to(std::back_inserter(*out),
                     "\"tool_calls\":[{{\"index\":{},\"function\":{{\"arguments\":", part.call);
      AppendJsonString(out, part.text);
      *out += "}}]";
      return;
  }
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

std::string_view ErrorCodeOf(int http_status, std::string_view message, std::string_view param) {
  if (http_status == 400 && OverflowIn(message)) return "context_length_exceeded";
  if (http_status == 401) return "invalid_api_key";
  if (http_status == 404 && param == "model") return "model_not_found";
  if (http_status == 429) return "rate_limit_exceeded";
  return {};
}

std::string WithContextLength(std::string_view message) {
  std::string text(message);
  if (const auto overflow = OverflowIn(message))
    text += fmt::format(". This model's maximum context length is {} tokens.", overflow->context);
  return text;
}

std::string ErrorText(int http_status, std::string_view message, std::string_view param) {
  const char* type = http_status == 401   ? "authentication_error"
                     : http_status == 404 ? "not_found_error"
                     : http_status == 429 ? "rate_limit_error"
                     : http_status == 503 ? "overloaded_error"
                     : http_status >= 500 ? "server_error"
                                          : "invalid_request_error";
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(&out, WithContextLength(message));
  out += ",\"type\":";
  AppendJsonString(&out, type);
  out += ",\"param\":";
  if (param.empty())
    out += "null";
  else
    AppendJsonString(&out, param);
  out += ",\"code\":";
  if (const std::string_view code = ErrorCodeOf(http_status, message, param); code.empty())
    out += "null";
  else
    AppendJsonString(&out, code);
  out += "}}";
  return out;
}

std::string ErrorText(const Status& status) {
  return ErrorText(HttpStatusOf(status.code()), status.message(), status.param());
}

std::string IgnoredText(const std::vector<std::string>& names) {
  constexpr size_t kMostBytes = 1024, kMostNameBytes = 100;
  std::string list;
  for (const std::string& name : names) {
    if (!list.empty()) list += ", ";
    if (list.size() > kMostBytes) {
      list += "...";
      break;
    }
    for (const char c : std::string_view(name).substr(0, kMostNameBytes))
      list += c >= ' ' && c < 0x7f && c != ',' ? c : '?';
  }
  return list;
}

std::string_view FinishText(FinishReason reason, bool called) {
  switch (reason) {
    case FinishReason::kStop:
      return called ? "tool_calls" : "stop";
    case FinishReason::kLength:
      return "length";
    default:
      return {};
  }
}

std::string TextOf(const std::vector<AnswerPart>& parts, AnswerPart::Kind kind) {
  std::string text;
  for (const AnswerPart& part : parts) {
    if (part.kind == kind) text += part.text;
  }
  return text;
}

std::string ArgumentsOf(const std::vector<AnswerPart>& parts, int32_t call) {
  std::string text;
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kCallArguments && part.call == call) text += part.text;
  }
  return text;
}

bool Called(const std::vector<AnswerPart>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const AnswerPart& part) { return part.kind == AnswerPart::Kind::kCallBegin; });
}

bool CallsToRun(const std::vector<AnswerPart>& parts, std::string_view stop_string) {
  if (stop_string.empty() || !Called(parts)) return Called(parts);
  int32_t last = 0;
  for (const AnswerPart& part : parts) last = std::max(last, part.call);
  return Json::accept(ArgumentsOf(parts, last));
}

void AppendPart(AnswerPart part, std::vector<AnswerPart>* parts) {
  const bool more = !parts->empty() && part.kind != AnswerPart::Kind::kCallBegin && parts->back().kind == part.kind &&
                    parts->back().call == part.call;
  if (more)
    parts->back().text += part.text;
  else
    parts->push_back(std::move(part));
}

CompletionWriter::CompletionWriter(const Engine& engine, CompletionForm form, std::string id, int64_t created,
                                   std::string_view fingerprint)
    : engine_(engine), form_(std::move(form)), id_(std::move(id)) {
  std::string rest = fmt::format("\",\"created\":{},\"model\":", created);
  AppendJsonString(&rest, engine.model().name);
  rest += ",\"system_fingerprint\":";
  AppendJsonString(&rest, fingerprint);
  rest += ",\"choices\":[";
  std::string head = "{\"id\":";
  AppendJsonString(&head, id_);
  head += ",\"object\":\"";
  whole_head_ = head + (form_.chat ? "chat.completion" : "text_completion") + rest;
  chunk_head_ = form_.frame.before + head + (form_.chat ? "chat.completion.chunk" : "text_completion") + rest;
}

void CompletionWriter::OpenChunk(std::string* out, int32_t index) const {
  *out += chunk_head_;
  *out += "{\"index\":";
  AppendNumber(out, index);
}

void CompletionWriter::CloseChunk(std::string* out, const AnswerUsage* usage) const {
  *out += "}]";
  if (usage != nullptr) {
    *out += ",\"usage\":";
    AppendUsageObject(out, *usage, form_.chat);
  } else if (form_.include_usage) {
    *out += ",\"usage\":null";
  }
  *out += '}';
  *out += form_.frame.after;
}

void CompletionWriter::AppendFinish(std::string* out, FinishReason finish, bool called,
                                    std::string_view stop_string) const {
  const std::string_view reason = FinishText(finish, called);
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

void CompletionWriter::AppendChatLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows) const {
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
    const size_t count = std::min(row.size() - 1, static_cast<size_t>(form_.logprobs));
    for (size_t i = 1; i <= count; ++i) {
      if (i > 1) out->push_back(',');
      entry(row[i]);
      out->push_back('}');
    }
    *out += "]}";
  }
  *out += "],\"refusal\":null}";
}

// A token that is part of a character is written as its bytes, as OpenAI does, so that two such tokens have different
// names.
std::string CompletionWriter::TokenText(TokenId token) const {
  const std::string bytes = engine_.TokenBytes(token);
  if (IsValidUtf8(bytes)) return engine_.TokenString(token);
  std::string text = "bytes:";
  for (const char c : bytes)
    fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return text;
}

void CompletionWriter::Advance(TokenId token, std::string_view text, TextPlace* place) const {
  std::string bytes = engine_.TokenBytes(token);
  if (bytes.empty()) return;
  const bool at_rest = place->pending.empty() && place->bytes < text.size();
  const std::string_view rest = at_rest ? text.substr(place->bytes) : std::string_view();
  if (engine_.IsSpecialToken(token) && !rest.starts_with(bytes)) return;  // not part of the text
  // The space that a tokeniser adds before a text is not part of it either.
  if (place->characters == 0 && at_rest && bytes[0] == ' ' && rest[0] != ' ') bytes.erase(0, 1);
  place->pending += bytes;
  while (!place->pending.empty()) {
    const Utf8Step step = DecodeUtf8(place->pending);
    if (step.state == Utf8Step::State::kIncomplete) return;
    ++place->characters;
    place->bytes += step.state == Utf8Step::State::kValid ? step.size : 3;  // U+FFFD
    place->pending.erase(0, step.size);
  }
}

void CompletionWriter::AppendLogprobs(std::string* out, const std::vector<std::vector<TokenLogprob>>& rows,
                                      std::string_view text, TextPlace* place) const {
  *out += ",\"logprobs\":";
  if (form_.logprobs < 0) {
    *out += "null";
    return;
  }
  if (form_.chat) return AppendChatLogprobs(out, rows);
  std::string offsets, tokens, chosen, tops;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    if (row.empty()) continue;
    if (!tokens.empty())
      for (std::string* list : {&offsets, &tokens, &chosen, &tops}) list->push_back(',');
    AppendNumber(&offsets, place->characters + (place->pending.empty() ? 0 : 1));
    Advance(row.front().token, text, place);
    AppendJsonString(&tokens, TokenText(row.front().token));
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
      std::string name = TokenText(item.token);
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      if (!seen.empty()) tops.push_back(',');
      AppendJsonString(&tops, name);
      tops.push_back(':');
      AppendLogprob(&tops, item.logprob);
      seen.push_back(std::move(name));
    }
    tops.push_back('}');
  }
  if (form_.logprobs == 0) tops.clear();
  *out += "{\"text_offset\":[" + offsets + "],\"token_logprobs\":[" + chosen + "],\"tokens\":[" + tokens +
          "],\"top_logprobs\":" + (form_.logprobs == 0 ? "null" : "[" + tops + "]") + "}";
}

CompletionWriter::TextPlace* CompletionWriter::PlaceOf(int32_t index) {
  const auto at = static_cast<size_t>(index);
  if (at >= places_.size()) places_.resize(at + 1);
  return &places_[at];
}

void CompletionWriter::AppendBegin(std::string* out, int32_t index, const EchoedPrompt* echo,
                                   const AnswerUsage& /*usage*/) {
  if (form_.chat) {
    OpenChunk(out, index);
    *out += ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null";
    CloseChunk(out, nullptr);
  }
  if (echo == nullptr) return;
  OpenChunk(out, index);
  *out += ",\"text\":";
  AppendJsonString(out, echo->text);
  AppendLogprobs(out, echo->logprobs, echo->text, PlaceOf(index));
  *out += ",\"finish_reason\":null";
  CloseChunk(out, nullptr);
}

void CompletionWriter::AppendDelta(std::string* out, int32_t index, const ChoiceDelta& delta,
                                   const AnswerUsage& usage) {
  const size_t chunks = std::max<size_t>(1, delta.parts.size());
  for (size_t i = 0; i < chunks; ++i) {
    const bool last = i + 1 == chunks;
    const AnswerPart* part = delta.parts.empty() ? nullptr : &delta.parts[i];
    OpenChunk(out, index);
    if (!form_.chat) {
      *out += ",\"text\":";
      AppendJsonString(out, part == nullptr ? std::string_view() : part->text);
    } else {
      *out += ",\"delta\":{";
      if (part != nullptr)
        AppendMember(out, *part);
      else if (delta.finish == FinishReason::kNone)
        *out += "\"content\":\"\"";
      out->push_back('}');
    }
    if (i > 0 || (form_.logprobs >= 0 && delta.logprobs.empty()))
      *out += ",\"logprobs\":null";
    else
      AppendLogprobs(out, delta.logprobs, {}, PlaceOf(index));
    AppendFinish(out, last ? delta.finish : FinishReason::kNone, delta.called,
                 last ? delta.stop_string : std::string_view());
    CloseChunk(out, form_.continuous_usage ? &usage : nullptr);
  }
}

void CompletionWriter::AppendLast(std::string* out, const AnswerUsage& usage, std::string_view schedule) {
  if (!form_.include_usage && schedule.empty()) return;
  *out += chunk_head_;
  *out += ']';
  if (form_.include_usage) {
    *out += ",\"usage\":";
    AppendUsageObject(out, usage, form_.chat);
  }
  AppendScheduleMember(out, schedule);
  *out += '}';
  *out += form_.frame.after;
}

void CompletionWriter::AppendError(std::string* out, const Status& status) {
  *out += form_.frame.before;
  *out += ErrorText(status);
  *out += form_.frame.after;
}

void CompletionWriter::AppendMessage(std::string* out, const std::vector<AnswerPart>& parts) const {
  const auto is = [](AnswerPart::Kind kind) { return [kind](const AnswerPart& part) { return part.kind == kind; }; };
  const bool spoke = std::any_of(parts.begin(), parts.end(), is(AnswerPart::Kind::kText));
  const bool thought = std::any_of(parts.begin(), parts.end(), is(AnswerPart::Kind::kReasoning));
  const bool called = Called(parts);
  *out += ",\"message\":{\"role\":\"assistant\",\"content\":";
  if (spoke || !(called || thought))
    AppendJsonString(out, TextOf(parts));
  else
    *out += "null";
  *out += ",\"refusal\":null";
  if (thought) {
    *out += ",\"reasoning_content\":";
    AppendJsonString(out, TextOf(parts, AnswerPart::Kind::kReasoning));
  }
  if (called) {
    *out += ",\"tool_calls\":[";
    for (const AnswerPart& part : parts) {
      if (part.kind != AnswerPart::Kind::kCallBegin) continue;
      if (part.call > 0) out->push_back(',');
      *out += "{\"id\":";
      AppendJsonString(out, part.id);
      *out += ",\"type\":\"function\",\"function\":{\"name\":";
      AppendJsonString(out, part.name);
      *out += ",\"arguments\":";
      AppendJsonString(out, ArgumentsOf(parts, part.call));
      *out += "}}";
    }
    out->push_back(']');
  }
  out->push_back('}');
}

std::string CompletionWriter::Whole(const std::vector<ChoiceText>& choices, const AnswerUsage& usage,
                                    std::string_view schedule) {
  std::string out = whole_head_;
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChoiceText& choice = choices[i];
    std::string text;
    if (i > 0) out.push_back(',');
    out += "{\"index\":";
    AppendNumber(&out, static_cast<int64_t>(i));
    if (form_.chat) {
      AppendMessage(&out, choice.parts);
    } else {
      text = TextOf(choice.parts);
      out += ",\"text\":";
      AppendJsonString(&out, text);
    }
    TextPlace place;
    AppendLogprobs(&out, choice.logprobs, text, &place);
    AppendFinish(&out, choice.finish, CallsToRun(choice.parts, choice.stop_string), choice.stop_string);
    out.push_back('}');
  }
  out += "],\"usage\":";
  AppendUsageObject(&out, usage, form_.chat);
  AppendScheduleMember(&out, schedule);
  out.push_back('}');
  return out;
}

std::string ModelText(const ModelInfo& model, std::string_view name, int64_t created) {
  std::string out = "{\"id\":";
  AppendJsonString(&out, name);
  fmt::format_to(std::back_inserter(out),
                 ",\"object\":\"model\",\"created\":{},\"owned_by\":\"tactus\",\"root\":", created);
  AppendJsonString(&out, model.name);
  fmt::format_to(std::back_inserter(out), ",\"parent\":null,\"max_model_len\":{}}}", model.max_model_len);
  return out;
}

std::string ModelsText(const ModelInfo& model, int64_t created) {
  std::string out = "{\"object\":\"list\",\"data\":[" + ModelText(model, model.name, created);
  for (const std::string& name : model.other_names) out += "," + ModelText(model, name, created);
  return out + "]}";
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
