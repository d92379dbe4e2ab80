#include "router/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/printable.h"
#include "router/mover.h"

namespace tactus::router {
namespace {

constexpr int64_t kUnsentBytes = 64 << 10;  // written to a client that does not take them, before its replica waits
constexpr int64_t kFreeRetries = 3;         // at once, whatever the budget
constexpr double kFollowUsage = 0.05;
constexpr const char* kMovedHeader = "x-tactus-migrated";

// Of one connection, not of the message (RFC 9110, 7.6.1), and what each side writes for itself.
bool HopByHop(std::string_view name) {
  constexpr std::array<std::string_view, 11> kNames = {"Connection",
                                                       "Keep-Alive",
                                                       "Proxy-Connection",
                                                       "Proxy-Authenticate",
                                                       "Proxy-Authorization",
                                                       "TE",
                                                       "Trailer",
                                                       "Transfer-Encoding",
                                                       "Upgrade",
                                                       "Content-Length",
                                                       "Expect"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view n) { return http::EqualsIgnoreCase(n, name); });
}

// Whether a header is named by Connection.
bool Named(const http::Headers& headers, std::string_view name) {
  const std::string* connection = http::FindHeader(headers, "Connection");
  if (connection == nullptr) return false;
  for (size_t at = 0; at < connection->size();) {
    const size_t end = std::min(connection->find(',', at), connection->size());
    std::string_view token = std::string_view(*connection).substr(at, end - at);
    while (token.starts_with(' ')) token.remove_prefix(1);
    while (token.ends_with(' ')) token.remove_suffix(1);
    if (http::EqualsIgnoreCase(token, name)) return true;
    at = end + 1;
  }
  return false;
}

bool Begins(std::string_view name, std::string_view with) {
  return http::EqualsIgnoreCase(name.substr(0, with.size()), with);
}

// "http://host:port ticket", of an answer that is no stream.
std::optional<Moved> MovedBy(const http::Headers& headers) {
  const std::string* moved = http::FindHeader(headers, kMovedHeader);
  if (moved == nullptr) return std::nullopt;
  const size_t space = moved->find(' ');
  if (space == std::string::npos) return std::nullopt;
  return Moved{moved->substr(0, space), moved->substr(space + 1)};
}

bool IsEventStream(const http::Headers& headers) {
  const std::string* type = http::FindHeader(headers, "Content-Type");
  return type != nullptr && type->rfind("text/event-stream", 0) == 0;
}

// Somebody else may do better.
bool Elsewhere(int status) {
  return status == 502 || status == 503 || status == 504;
}

}  // namespace

// At one replica.
class Forward::Attempt final : public http::ResponseHandler {
 public:
  Attempt(std::shared_ptr<Forward> forward, Picked picked) : forward_(std::move(forward)), at(std::move(picked)) {}
  void OnHead(int head_status, const http::Headers& head_headers, TimeNs) override {
    status = head_status;
    headers = head_headers;
    if (forward_) forward_->OnHead(*this);
  }
  bool OnPiece(std::string_view bytes) override { return forward_ == nullptr || forward_->OnPiece(*this, bytes); }
  void OnDone(const Status& done, const http::HttpResponse&, TimeNs) override {
    call = 0;
    const std::shared_ptr<Forward> forward = std::move(forward_);
    if (forward) forward->OnDone(*this, done);
  }
  // Nobody wants its answer any more.
  void Drop() {
    forward_.reset();
    if (call != 0) client->Cancel(std::exchange(call, 0));
  }

 private:
  std::shared_ptr<Forward> forward_;

 public:
  const Picked at;
  http::Client* client = nullptr;
  http::Client::CallId call = 0;
  int status = 0;
  http::Headers headers;
  std::string body;  // held
  AnswerScan scan;
  bool ended = false;  // its ticket
};

Forward::Forward(ForwardContext& context, std::shared_ptr<http::Exchange> exchange, RequestView view, http::Body body,
                 http::Headers headers, http::ClientCounts::Places places)
    : context_(context),
      exchange_(std::move(exchange)),
      view_(std::move(view)),
      body_(std::move(body)),
      headers_(std::move(headers)),
      places_(std::move(places)),
      arrival_ns_(context.clock.NowNs()) {
  ++context_.counts.in_flight;
}

Forward::~Forward() {
  End();
}

void Forward::Start() {
  exchange_->OnClosed([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->End();
  });
  if (over_) return;
  if (!Try()) {
    return Fail(503, context_.watch.size() == 0 ? "the fleet has no replicas; add some with --replicas"
                                                : "no replica takes requests now; try again");
  }
  if (context_.options.hedge_after.ns > 0) {
    context_.loop.After(context_.options.hedge_after.ns, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Hedge();
    });
  }
}

bool Forward::Try() {
  auto picked = context_.watch.Pick(view_.Route(context_.bytes_per_token), {}, been_);
  if (!picked) return false;
  ++tries_;
  been_.push_back(picked->replica);
  const std::string url = picked->url;
  Send(std::make_shared<Attempt>(shared_from_this(), std::move(*picked)), url, Request());
  return true;
}

void Forward::Send(std::shared_ptr<Attempt> attempt, const std::string& url, http::ClientRequest request) {
  http::Client& client = context_.client(url);
  attempts_.push_back(attempt);
  attempt->client = &client;
  attempt->call = client.Send(std::move(request), attempt);
}

http::ClientRequest Forward::Request() const {
  const http::HttpRequest& from = exchange_->request();
  http::ClientRequest request;
  request.method = from.method;
  request.path = from.target.starts_with("/") ? from.target : from.path;
  request.body = std::string(body_.text());
  const bool own_keys = !context_.options.api_key.empty() || !context_.options.replica_api_key.empty();
  for (const auto& [name, value] : from.headers) {
    const bool ours = http::EqualsIgnoreCase(name, "Host") || http::EqualsIgnoreCase(name, "X-Request-Id") ||
                      (own_keys && http::EqualsIgnoreCase(name, "Authorization")) ||
                      http::EqualsIgnoreCase(name, "x-tactus-route");
    if (!ours && !HopByHop(name) && !Named(from.headers, name)) request.headers.emplace_back(name, value);
  }
  if (!context_.options.replica_api_key.empty())
    request.headers.emplace_back("Authorization", "Bearer " + context_.options.replica_api_key);
  if (const std::string* id = http::FindHeader(headers_, "X-Request-Id"))
    request.headers.emplace_back("X-Request-Id", *id);
  request.headers.emplace_back("X-Forwarded-For", from.peer);
  request.headers.emplace_back("x-tactus-route", "1");
  return request;
}

void Forward::Hedge() {
  if (over_ || leader_ != nullptr || attempts_.size() != 1 || !MayRetry(Why::kFull)) return;
  if (Try()) ++context_.counts.hedges;
}

void Forward::OnHead(Attempt& attempt) {
  if (over_ || attempt.status / 100 != 2 || !IsEventStream(attempt.headers)) return;
  if (leader_ == nullptr) Lead(attempt);
}

// Its answer is the client's from now on: the others' are not wanted.
void Forward::Lead(Attempt& attempt) {
  leader_ = &attempt;
  for (const auto& other : std::vector(attempts_)) {
    if (other.get() == &attempt) continue;
    EndTicket(*other);
    other->Drop();
    std::erase(attempts_, other);
  }
  event_stream_ = IsEventStream(attempt.headers);
  if (stream_begun_) return;  // by a replica that told nothing
  stream_begun_ = true;
  exchange_->StartStream(Head(attempt));
}

http::HttpResponse Forward::Head(const Attempt& attempt) const {
  http::HttpResponse head;
  head.status = attempt.status;
  head.content_type.clear();
  head.headers = headers_;
  for (const auto& [name, value] : attempt.headers) {
    if (http::EqualsIgnoreCase(name, "Content-Type")) {
      head.content_type = value;
      continue;
    }
    const bool ours = http::EqualsIgnoreCase(name, "Server") || http::EqualsIgnoreCase(name, "X-Request-Id") ||
                      http::EqualsIgnoreCase(name, kMovedHeader) || Begins(name, "Access-Control-");
    if (!ours && !HopByHop(name) && !Named(attempt.headers, name)) head.headers.emplace_back(name, value);
  }
  head.headers.emplace_back("x-tactus-replica", attempt.at.address);
  return head;
}

bool Forward::OnPiece(Attempt& attempt, std::string_view bytes) {
  if (over_) return true;
  if (leader_ == &attempt) return Write(attempt, bytes);
  attempt.body += bytes;
  if (static_cast<int64_t>(attempt.body.size()) <= kHeldBytes || leader_ != nullptr) return true;
  Lead(attempt);
  const std::string held = std::move(attempt.body);
  return Write(attempt, held);
}

// False: the client has enough for now.
bool Forward::Write(Attempt& attempt, std::string_view bytes) {
  exchange_->Write(event_stream_ ? attempt.scan.Stream(bytes) : bytes);
  if (attempt.scan.events() > 0 && body_.bytes() > 0) body_ = http::Body();  // it will not be sent again
  if (exchange_->unsent() <= kUnsentBytes) return true;
  exchange_->WhenSent([weak = weak_from_this(), client = attempt.client, call = attempt.call] {
    const auto self = weak.lock();
    if (self && !self->over_) client->Resume(call);
  });
  return false;
}

void Forward::OnDone(Attempt& attempt, const Status& status) {
  const auto at = std::find_if(attempts_.begin(), attempts_.end(), [&](const auto& a) { return a.get() == &attempt; });
  if (at == attempts_.end()) return;
  const std::shared_ptr<Attempt> held = *at;
  attempts_.erase(at);
  if (over_) return;
  if (leader_ == &attempt) return StreamEnded(attempt, status);
  if (!status.ok()) return Failed(attempt, status.message(), Why::kLost);
  if (Elsewhere(attempt.status)) {
    best_failure_ = held;
    return Failed(attempt, fmt::format("it says {}", attempt.status), attempt.status == 503 ? Why::kFull : Why::kFault);
  }
  if (const auto moved = MovedBy(attempt.headers)) return Follow(attempt, *moved);
  Answer(attempt);
}

void Forward::StreamEnded(Attempt& attempt, const Status& status) {
  leader_ = nullptr;
  told_events_ += attempt.scan.events();
  if (status.ok()) {
    if (event_stream_ && attempt.scan.moved()) return Follow(attempt, *attempt.scan.moved());
    context_.watch.Succeeded(attempt.at.replica);
    Count(attempt, attempt.status);
    EndTicket(attempt);
    exchange_->End();
    return End();
  }
  if (event_stream_ && told_events_ == 0) return Failed(attempt, status.message(), Why::kLost);
  context_.watch.Failed(attempt.at.replica);
  Count(attempt, 0);
  EndTicket(attempt);
  ++context_.counts.cut_streams;
  Fail(502, fmt::format("replica {} ended in the midst of its answer: {}", attempt.at.address, status.message()));
}

// The sequence runs on another replica now, which has the rest of its answer.
void Forward::Follow(Attempt& attempt, const Moved& moved) {
  EndTicket(attempt);
  context_.counts.migrations["followed"]++;
  http::ClientRequest request;
  request.path = "/fleet/streams/" + moved.ticket;
  request.body = "{}";
  if (context_.keys) request.headers = SignedHeaders(*context_.keys, "POST", request.path, request.body);
  // A replica that lies does not get to say where the router connects.
  auto there = context_.watch.Moved(moved.url, view_.Route(context_.bytes_per_token));
  if (!there) {
    return Fail(502, fmt::format("replica {} moved the request to '{}', which is none of this fleet",
                                 attempt.at.address, Printable(moved.url)));
  }
  been_.push_back(there->replica);
  const std::string url = there->url;
  Send(std::make_shared<Attempt>(shared_from_this(), std::move(*there)), url, std::move(request));
}

// What a replica has lost must be had elsewhere. What one would not take is more work for those that are busy, so that
// only a share of all may ask again.
bool Forward::MayRetry(Why why) const {
  if (tries_ > context_.options.retries) return false;
  if (why == Why::kLost) return true;
  const double budget = context_.options.retry_budget * static_cast<double>(context_.counts.in_flight);
  return retrying_ || static_cast<double>(context_.counts.retrying) < std::max<double>(kFreeRetries, budget);
}

// Nothing was told of this answer.
void Forward::Failed(Attempt& attempt, const std::string& text, Why why) {
  if (why != Why::kFull) context_.watch.Failed(attempt.at.replica);
  Count(attempt, attempt.status);
  EndTicket(attempt);
  last_error_ = fmt::format("replica {}: {}", attempt.at.address, Printable(text));
  if (!attempts_.empty()) return;  // a hedge is under way
  if (told_events_ == 0 && MayRetry(why) && Try()) {
    ++context_.counts.retries;
    if (!retrying_) ++context_.counts.retrying;
    retrying_ = true;
    return;
  }
  if (best_failure_ && !stream_begun_) return Answer(*std::exchange(best_failure_, nullptr));
  Fail(502, last_error_);
}

void Forward::Answer(Attempt& attempt) {
  attempt.scan.Whole(attempt.body);
  if (!Elsewhere(attempt.status)) {
    if (attempt.status == 500)
      context_.watch.Failed(attempt.at.replica);
    else
      context_.watch.Succeeded(attempt.at.replica);
    Count(attempt, attempt.status);
    EndTicket(attempt);
  }
  if (stream_begun_) {  // as an event stream, by a replica that told nothing
    return Fail(502, fmt::format("replica {}: it says {}", attempt.at.address, attempt.status));
  }
  http::HttpResponse response = Head(attempt);
  response.body = std::move(attempt.body);
  exchange_->Respond(std::move(response));
  End();
}

void Forward::Count(Attempt& attempt, int status) {
  context_.counts.answers[{attempt.at.address, status}]++;
}

void Forward::EndTicket(Attempt& attempt) {
  if (std::exchange(attempt.ended, true)) return;
  const AnswerScan& scan = attempt.scan;
  const bool good = attempt.status / 100 == 2 && scan.output_tokens() > 0;
  context_.watch.Ended(attempt.at.ticket,
                       good ? static_cast<int32_t>(std::min<int64_t>(scan.output_tokens(), 1 << 30)) : -1);
  if (!good || scan.prompt_tokens() <= 0 || view_.prompt_tokens > 0 || view_.prompt_bytes < kChunkBytes) return;
  const double ratio = static_cast<double>(view_.prompt_bytes) / static_cast<double>(scan.prompt_tokens());
  context_.bytes_per_token += kFollowUsage * (std::clamp(ratio, 0.5, 16.0) - context_.bytes_per_token);
}

void Forward::Fail(int status, const std::string& message) {
  if (over_) return;
  const std::string text = context_.error_text(status, message);
  if (!stream_begun_) {
    http::HttpResponse response;
    response.status = status;
    response.headers = headers_;
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    response.body = text;
    exchange_->Respond(std::move(response));
  } else if (event_stream_) {
    exchange_->Write("data: " + text + "\n\n");  // and no [DONE]
    exchange_->End();
  } else {
    exchange_->Abort();
  }
  End();
}

void Forward::Lost(int32_t replica) {
  for (const auto& attempt : std::vector(attempts_)) {
    if (over_ || attempt->at.replica != replica) continue;
    const std::shared_ptr<Forward> self = shared_from_this();
    if (attempt->call != 0) attempt->client->Cancel(std::exchange(attempt->call, 0));
    attempt->OnDone(Status(StatusCode::kUnavailable, "it has not been heard of (--dead-after)"), {}, 0);
  }
}

void Forward::Tick(TimeNs now_ns) {
  if (over_ || context_.options.request_timeout.ns <= 0) return;
  if (now_ns - arrival_ns_ < context_.options.request_timeout.ns) return;
  Fail(504, fmt::format("the request took longer than {} ms (--request-timeout)",
                        context_.options.request_timeout.ns / kMillisecond));
}

void Forward::End() {
  if (std::exchange(over_, true)) return;
  --context_.counts.in_flight;
  if (retrying_) --context_.counts.retrying;
  for (const auto& attempt : attempts_) {
    EndTicket(*attempt);
    attempt->Drop();
  }
  attempts_.clear();
  best_failure_.reset();
  leader_ = nullptr;
  body_ = http::Body();
  places_.ReleaseAll();
  exchange_->OnClosed(nullptr);
}

}  // namespace tactus::router
