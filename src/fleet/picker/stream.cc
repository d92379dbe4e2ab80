#include "fleet/picker/stream.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/json_text.h"

namespace tactus::fleet {
namespace {

// Some data planes accept no messages of 64 KiB or more.
constexpr size_t kPieceBytes = 60 << 10;
constexpr char kJsonType[] = "application/json";
constexpr size_t kAnswerEndBytes = 4096;

const char* ErrorType(int status) {
  if (status == 408) return "timeout_error";
  return status == 429 ? "rate_limit_error" : status == 413 ? "invalid_request_error" : "service_unavailable";
}

std::string ErrorBody(const Refusal& refusal) {
  std::string body = "{\"error\": {\"message\": ";
  json_text::AppendJsonString(&body, refusal.message);
  body += ", \"type\": ";
  json_text::AppendJsonString(&body, ErrorType(refusal.status));
  body += ", \"param\": null, \"code\": null}}";
  return body;
}

// Passes a body on, in pieces that any data plane accepts. An empty piece is sent too: it carries the end.
void AppendStreamed(Reply::Kind kind, std::string body, bool end, Stream::Replies* replies) {
  if (body.size() <= kPieceBytes) {
    replies->push_back({.kind = kind, .streamed = true, .body = std::move(body), .end_of_stream = end});
    return;
  }
  for (size_t at = 0; at < body.size(); at += kPieceBytes) {
    const bool last = at + kPieceBytes >= body.size();
    replies->push_back(
        {.kind = kind, .streamed = true, .body = body.substr(at, kPieceBytes), .end_of_stream = last && end});
  }
}

// -1: missing or not a number.
int64_t NumberIn(const http::Headers& headers, std::string_view name) {
  const std::string* text = http::FindHeader(headers, name);
  int64_t value = -1;
  if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

bool HasType(const http::Headers& headers, std::string_view type) {
  const std::string* value = http::FindHeader(headers, "content-type");
  return value != nullptr && value->rfind(type, 0) == 0;
}

bool IsCompressed(const http::Headers& headers) {
  const std::string* encoding = http::FindHeader(headers, "content-encoding");
  return encoding != nullptr && *encoding != "identity";
}

bool IsGood(int status) {
  return status >= 200 && status < 300;
}

// A request whose body is not received; body_bytes -1: length not known.
RequestView ViewOfLength(int64_t body_bytes) {
  RequestView view;
  view.prompt_bytes = std::max<int64_t>(body_bytes, 0);
  return view;
}

}  // namespace

Stream::Stream(Picker& picker, BodyMode request_mode, BodyMode response_mode)
    : picker_(picker), request_mode_(request_mode), response_mode_(response_mode) {
  picker_.StreamBegan();
}

Stream::~Stream() {
  DropBody();
  picker_.GiveRoom(message_room_);
  if (has_pick_) picker_.Ended(choice_, -1, OutcomeWithoutEnd());
  picker_.StreamEnded();
}

void Stream::SetModes(BodyMode request_mode, BodyMode response_mode) {
  request_mode_ = request_mode;
  response_mode_ = response_mode;
}

Stream::Replies Stream::RequestHeaders(const http::Headers& headers, bool end, StreamMetadata metadata) {
  Replies replies;
  seen_ = true;
  metadata_ = std::move(metadata);
  request_ended_ = request_ended_ || end;
  const int64_t length = NumberIn(headers, "content-length");
  if (!request_ended_ && length > picker_.options().max_body_bytes && request_mode_ != BodyMode::kNone) {
    Refuse(picker_.Refuse(Refusal::Reason::kBodyTooLarge), &replies);
    return replies;
  }
  if (!request_ended_ && request_mode_ == BodyMode::kFullDuplex) {
    headers_held_ = true;
    return replies;
  }
  // A data plane that buffers the body lets the reply to the body change headers, so the choice can wait for it.
  const bool by_body = !request_ended_ && request_mode_ == BodyMode::kBuffered;
  if (by_body || Choose(ViewOfLength(request_ended_ ? 0 : length), &replies)) {
    replies.push_back({.kind = Reply::Kind::kRequestHeaders, .destination = TakeDestination()});
  }
  return replies;
}

Stream::Replies Stream::RequestBody(std::string piece, bool end, StreamMetadata metadata) {
  Replies replies;
  seen_ = true;
  // After the end no reply is due: some releases of Envoy send the last piece of a large body again.
  if (refused_ || (request_ended_ && request_mode_ == BodyMode::kFullDuplex)) return replies;
  if (metadata.subset) metadata_.subset = std::move(metadata.subset);
  const bool held = request_mode_ == BodyMode::kFullDuplex || request_mode_ == BodyMode::kBuffered;
  if (!held || chosen_) {
    request_ended_ = request_ended_ || end;
    // Without headers the body is the first message of the request.
    if (!Choose(ViewOfLength(static_cast<int64_t>(piece.size())), &replies)) return replies;
    replies.push_back({.kind = Reply::Kind::kRequestBody, .destination = TakeDestination()});
    return replies;
  }
  if (static_cast<int64_t>(body_.size() + piece.size()) > picker_.options().max_body_bytes) {
    Refuse(picker_.Refuse(Refusal::Reason::kBodyTooLarge), &replies);
    return replies;
  }
  const auto bytes = static_cast<int64_t>(piece.size());
  if (!picker_.TakeRoom(bytes)) {
    Refuse(picker_.Refuse(Refusal::Reason::kBodiesTooLarge), &replies);
    return replies;
  }
  room_ += bytes;
  if (body_.empty()) {
    body_ = std::move(piece);
  } else {
    body_ += piece;
  }
  if (request_mode_ == BodyMode::kBuffered) {  // arrives complete, with or without trailers
    request_ended_ = true;
    if (!Choose(ViewRequest(body_, picker_.options().secret), &replies)) return replies;
    DropBody();
    replies.push_back({.kind = Reply::Kind::kRequestBody, .destination = TakeDestination()});
  } else if (end) {
    RouteWhole(false, &replies);
  }
  return replies;
}

Stream::Replies Stream::RequestTrailers(StreamMetadata metadata) {
  Replies replies;
  if (refused_) return replies;
  if (metadata.subset) metadata_.subset = std::move(metadata.subset);
  if (request_mode_ == BodyMode::kFullDuplex && !request_ended_) {
    RouteWhole(true, &replies);
    if (refused_) return replies;
  } else if (!Choose({}, &replies)) {
    return replies;
  }
  replies.push_back({.kind = Reply::Kind::kRequestTrailers, .destination = TakeDestination()});
  return replies;
}

// In full duplex: replies with headers, then the held body.
void Stream::RouteWhole(bool by_trailers, Replies* replies) {
  request_ended_ = true;
  if (!Choose(ViewRequest(body_, picker_.options().secret), replies)) return;
  if (headers_held_) replies->push_back({.kind = Reply::Kind::kRequestHeaders, .destination = TakeDestination()});
  headers_held_ = false;
  if (by_trailers && body_.empty()) return;
  AppendStreamed(Reply::Kind::kRequestBody, std::move(body_), !by_trailers, replies);
  body_.clear();
  // If the data plane does not send the headers, the first piece carries the choice.
  if (!destination_.empty()) replies->front().destination = TakeDestination();
}

Stream::Replies Stream::ResponseHeaders(const http::Headers& headers, bool end, const StreamMetadata& metadata) {
  if (refused_) return {};
  status_ = static_cast<int>(NumberIn(headers, ":status"));
  if (!IsCompressed(headers)) {
    form_ = HasType(headers, "text/event-stream") ? Form::kEvents
            : HasType(headers, kJsonType)         ? Form::kWhole
                                                  : Form::kUnknown;
  }
  if (has_pick_ && !metadata.served.empty() && metadata.served != choice_.address) {
    picker_.Moved(view_, metadata.served, &choice_);
  }
  // A 503 in JSON comes from a full replica; a data plane's own 503 for an unreachable replica is not JSON.
  if (has_pick_) picker_.Answered(choice_, status_ < 500 || (status_ == 503 && HasType(headers, kJsonType)));
  if (end) EndResponse();
  return {{.kind = Reply::Kind::kResponseHeaders}};
}

Stream::Replies Stream::ResponseBody(std::string piece, bool end) {
  Replies replies;
  if (refused_) return replies;
  HearAnswer(piece);
  if (end) EndResponse();
  if (response_mode_ == BodyMode::kFullDuplex) {
    AppendStreamed(Reply::Kind::kResponseBody, std::move(piece), end, &replies);
  } else {
    replies.push_back({.kind = Reply::Kind::kResponseBody});
  }
  return replies;
}

Stream::Replies Stream::ResponseTrailers() {
  if (refused_) return {};
  EndResponse();
  return {{.kind = Reply::Kind::kResponseTrailers}};
}

bool Stream::Choose(RequestView view, Replies* replies) {
  if (std::exchange(chosen_, true)) return !refused_;
  view_ = std::move(view);
  choice_ = picker_.Choose(view_, metadata_.subset);
  if (choice_.refusal) {
    Refuse(*choice_.refusal, replies);
    return false;
  }
  has_pick_ = true;
  destination_ = choice_.destination;
  return true;
}

void Stream::Refuse(const Refusal& refusal, Replies* replies) {
  refused_ = true;
  DropBody();
  replies->clear();
  replies->push_back({.kind = Reply::Kind::kRefusal, .body = ErrorBody(refusal), .status = refusal.status});
}

std::string Stream::TakeDestination() {
  return std::exchange(destination_, {});
}

// The body's room is reserved while the replies hold its bytes.
void Stream::Passed() {
  if (request_ended_) DropBody();
  picker_.GiveRoom(std::exchange(message_room_, 0));
}

bool Stream::TakeMessage(int64_t bytes, Replies* replies) {
  if (picker_.TakeRoom(bytes)) {
    message_room_ += bytes;
    return true;
  }
  Refuse(picker_.Refuse(Refusal::Reason::kBodiesTooLarge), replies);
  return false;
}

Stream::Replies Stream::BodyIsLate() {
  Replies replies;
  Refuse(picker_.Refuse(Refusal::Reason::kBodyLate), &replies);
  return replies;
}

void Stream::DropBody() {
  std::string().swap(body_);
  picker_.GiveRoom(std::exchange(room_, 0));
}

void Stream::HearAnswer(std::string_view bytes) {
  if (form_ == Form::kEvents) {
    answer_.Stream(bytes);
  } else if (form_ == Form::kWhole) {
    answer_end_ += bytes.substr(bytes.size() - std::min(bytes.size(), kAnswerEndBytes));
    if (answer_end_.size() > 2 * kAnswerEndBytes) answer_end_.erase(0, answer_end_.size() - kAnswerEndBytes);
  }
}

int32_t Stream::OutputTokens() {
  if (form_ == Form::kWhole) answer_.Whole(answer_end_);
  const int64_t tokens = answer_.output_tokens();
  // Events that did not pass here were not counted, so the number of tokens is not known.
  const bool none_passed = tokens == 0 && (form_ == Form::kWhole || response_mode_ == BodyMode::kNone);
  if (form_ == Form::kUnknown || none_passed) return -1;
  return static_cast<int32_t>(std::min<int64_t>(tokens, std::numeric_limits<int32_t>::max()));
}

void Stream::EndResponse() {
  if (!std::exchange(has_pick_, false)) return;
  picker_.Ended(choice_, IsGood(status_) ? OutputTokens() : -1,
                IsGood(status_) ? Picker::Outcome::kCompleted : Picker::Outcome::kFailed);
}

// If the data plane does not send a response's body, its headers are the last message.
Picker::Outcome Stream::OutcomeWithoutEnd() const {
  if (response_mode_ != BodyMode::kNone || status_ <= 0) return Picker::Outcome::kAborted;
  return IsGood(status_) ? Picker::Outcome::kUnseen : Picker::Outcome::kFailed;
}

}  // namespace tactus::fleet
