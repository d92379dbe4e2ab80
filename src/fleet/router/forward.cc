#include "fleet/router/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/apis.h"
#include "api/paths.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "fleet/router/hop_headers.h"
#include "fleet/router/json_end.h"
#include "fleet/router/mover.h"

namespace tactus::fleet {
namespace {

// Whether this route's streams have a last event.
bool EndsByAnEvent(std::string_view path) {
  return path.ends_with("/completions") || path.ends_with("/responses") || path.ends_with("/messages");
}

constexpr int64_t kUnsentBytes = 64 << 10;  // written to a client that does not read them, before its replica must wait
constexpr int64_t kFreeRetries = 3;         // always permitted, whatever the budget
constexpr int kMostFollows = 8;
constexpr double kFollowUsage = 0.05;
constexpr const char* kMovedHeader = "x-tactus-migrated";
constexpr const char* kCutText = "its answer was incomplete";
constexpr size_t kMessageBytes = 500;  // longest message of a replica that is passed on

bool Begins(std::string_view name, std::string_view with) {
  return http::EqualsIgnoreCase(name.substr(0, with.size()), with);
}

// Reads "http://host:port ticket" from an answer that is not a stream.
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

// Whether only the end of the connection ends the answer; a replica that dies closes it too.
bool EndsByClosing(const http::Headers& headers) {
  return http::FindHeader(headers, "Content-Length") == nullptr &&
         http::FindHeader(headers, "Transfer-Encoding") == nullptr;
}

// The error message in an error of any API.
std::string MessageIn(const std::string& error) {
  const auto parsed = json_text::ParseJson(error, {.max_values = 1000});
  if (parsed.ok() && parsed->is_object()) {
    const auto inner = parsed->find("error");
    if (inner != parsed->end() && inner->is_string()) return inner->get<std::string>();
    const auto& holder = inner != parsed->end() && inner->is_object() ? *inner : *parsed;
    const auto message = holder.find("message");
    if (message != holder.end() && message->is_string()) return message->get<std::string>();
  }
  return error;
}

// Result of an answer with this status, by the rules of a load test.
RouteRecorder::End::How HowOf(int status) {
  using How = RouteRecorder::End::How;
  return status / 100 == 2 ? How::kCompleted : status == 429 || status == 503 ? How::kRejected : How::kFailed;
}

// Whether the client would have to repeat the request elsewhere, with its key and prompt; replicas may not redirect it.
bool IsRedirect(int status) {
  return status / 100 == 3 && status != 304;
}

// Whether another replica may succeed.
bool Elsewhere(int status) {
  return status == 502 || status == 503 || status == 504;
}

}  // namespace

// The request at one replica.
class Forward::Attempt final : public http::ResponseHandler {
 public:
  Attempt(std::shared_ptr<Forward> forward, Picked picked) : forward_(std::move(forward)), at(std::move(picked)) {}
  void OnHead(int head_status, const http::Headers& head_headers, TimeNs received_ns) override {
    status = head_status;
    headers = head_headers;
    streams = status / 100 == 2 && IsEventStream(headers);
    ends_by_closing = status / 100 == 2 && EndsByClosing(headers);
    heard_ns = received_ns;
  }
  bool OnPiece(std::string_view bytes) override {
    if (forward_ == nullptr) return true;
    const std::shared_ptr<Forward> forward = forward_;
    heard_ns = forward->context_.clock.NowNs();
    return forward->OnPiece(*this, bytes);
  }
  void OnDone(const Status& done, const http::HttpResponse&, TimeNs) override {
    call = 0;
    const std::shared_ptr<Forward> forward = std::move(forward_);
    if (forward) forward->OnDone(*this, done);
  }
  // The answer is no longer needed.
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
  JsonEnd json;
  bool streams = false;
  bool ends_by_closing = false;
  bool ended = false;     // its pick is ended
  bool followed = false;  // a request for the rest of an answer
  int64_t before = 0;     // events of that answer that came from other replicas
  int64_t noted = 0;      // events that have been recorded
  size_t tried = 0;       // its number in the report
  TimeNs heard_ns = 0;
};

bool IsRecorded(const http::HttpRequest& request) {
  return request.method == "POST" && api::CanonicalPath(request.path).starts_with("/v1/");
}

Forward::Forward(ForwardContext& context, std::shared_ptr<http::Exchange> exchange, RequestView view, http::Body body,
                 http::Headers headers, http::ClientCounts::Places places)
    : context_(context),
      exchange_(std::move(exchange)),
      view_(std::move(view)),
      body_(std::make_shared<const http::Body>(std::move(body))),
      headers_(std::move(headers)),
      places_(std::move(places)),
      arrival_ns_(context.clock.NowNs()),
      facts_(context.noted, exchange_.get()) {
  ++context_.counts.in_flight;
  if (context_.recorder != nullptr && IsRecorded(exchange_->request())) seen_ = context_.recorder->Arrived(arrival_ns_);
}

Forward::~Forward() {
  End();
}

void Forward::Start() {
  exchange_->OnClosed([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->End();
  });
  if (over_) return;
  may_hedge_ = context_.options.hedge_after.ns > 0;
  if (!Try()) {
    return Fail(503, context_.watch.size() == 0 ? "the fleet has no replicas; add some with --replicas"
                                                : "no replica accepts requests now; try again");
  }
  if (may_hedge_) {
    context_.loop.After(context_.options.hedge_after.ns, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Hedge();
    });
  }
}

bool Forward::Try() {
  auto picked = context_.watch.Pick(view_.Route(context_.bytes_per_token), {}, tried_replicas_);
  if (!picked) return false;
  ++tries_;
  tried_replicas_.push_back(picked->replica);
  const std::string url = picked->url;
  Send(std::make_shared<Attempt>(shared_from_this(), std::move(*picked)), url, Request());
  return true;
}

void Forward::Send(std::shared_ptr<Attempt> attempt, const std::string& url, http::ClientRequest request) {
  http::Client& client = context_.client(url);
  attempt->heard_ns = context_.clock.NowNs();
  attempt->tried = facts_.Try(attempt->at.address, attempt->heard_ns, &request);
  attempts_.push_back(attempt);
  attempt->client = &client;
  attempt->call = client.Send(std::move(request), attempt);
}

http::ClientRequest Forward::Request() const {
  const http::HttpRequest& from = exchange_->request();
  http::ClientRequest request;
  request.method = from.method;
  request.path = api::CanonicalPath(from.path);
  if (from.target.starts_with(from.path)) request.path += from.target.substr(from.path.size());  // the query
  request.counted = body_;
  const std::string& replica_key = context_.options.fleet.replica_api_key;
  const bool own_keys = !context_.options.api_key.empty() || !replica_key.empty();
  for (const auto& [name, value] : from.headers) {
    const bool ours =
        http::EqualsIgnoreCase(name, "Host") || http::EqualsIgnoreCase(name, "X-Request-Id") ||
        (own_keys && (http::EqualsIgnoreCase(name, "Authorization") || http::EqualsIgnoreCase(name, "x-api-key"))) ||
        http::EqualsIgnoreCase(name, "x-tactus-route") ||
        http::EqualsIgnoreCase(name, "Accept-Encoding");  // the router reads the answer
    if (!ours && !StaysBehind(from.headers, name)) request.headers.emplace_back(name, value);
  }
  if (!replica_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + replica_key);
  if (const std::string* id = http::FindHeader(headers_, "X-Request-Id"))
    request.headers.emplace_back("X-Request-Id", *id);
  request.headers.emplace_back("X-Forwarded-For", from.peer);
  if (context_.keys) request.headers.emplace_back("x-tactus-route", "1");  // this request may migrate
  return request;
}

void Forward::Hedge() {
  if (over_ || !may_hedge_) return;
  may_hedge_ = false;
  if (leader_ != nullptr || attempts_.size() != 1 || !MayRetry(Why::kFull)) return;
  if (Try()) ++context_.counts.hedges;
}

// The attempt's answer becomes the client's; the other attempts are dropped.
void Forward::Lead(Attempt& attempt) {
  leader_ = &attempt;
  for (const auto& other : std::vector(attempts_)) {
    if (other.get() == &attempt) continue;
    EndPick(*other);
    other->Drop();
    std::erase(attempts_, other);
  }
  event_stream_ = attempt.streams;
  if (!event_stream_) body_.reset();
  if (stream_begun_) return;  // by a replica that sent no event
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
    if (!ours && !StaysBehind(attempt.headers, name)) head.headers.emplace_back(name, value);
  }
  head.headers.emplace_back("x-tactus-replica", attempt.at.address);
  return head;
}

bool Forward::OnPiece(Attempt& attempt, std::string_view bytes) {
  if (over_) return true;
  if (attempt.streams) {
    const std::string_view told = attempt.scan.Stream(bytes);
    if (!attempt.scan.first_error().empty()) {
      ErrorFirst(attempt);
      return true;
    }
    if (told.empty()) return true;
    if (leader_ == nullptr && may_hedge_ && attempt.scan.events() == 0 && !attempt.scan.done())
      return true;  // a client with a hedged request needs no keep-alive comments
    if (leader_ == nullptr) Lead(attempt);
    return Pass(attempt, told);
  }
  if (IsRedirect(attempt.status)) return true;  // redirects are not passed on
  if (attempt.ends_by_closing) attempt.json.Feed(bytes);
  if (leader_ == &attempt) return Write(attempt, bytes);
  attempt.body += bytes;
  if (static_cast<int64_t>(attempt.body.size()) <= kHeldBytes || leader_ != nullptr) return true;
  Lead(attempt);
  const std::string held = std::move(attempt.body);
  return Write(attempt, held);
}

// Passes bytes of an event stream on.
bool Forward::Pass(Attempt& attempt, std::string_view told) {
  in_event_ = attempt.scan.in_event();
  if (attempt.scan.events() > 0) {
    body_.reset();
    follows_ = 0;
  }
  NoteEvents(attempt);
  return Write(attempt, told);
}

void Forward::NoteEvents(Attempt& attempt) {
  if (seen_.number < 0) return;
  const int64_t events = attempt.scan.events();
  context_.recorder->Told(events - std::exchange(attempt.noted, events), context_.clock.NowNs(), &seen_);
}

void Forward::NoteEnd(const Attempt& attempt, RouteRecorder::End::How how) {
  end_ = {how, attempt.at.replica, attempt.scan.prompt_tokens(), attempt.scan.output_tokens(attempt.before)};
  facts_.Answer(attempt.streams, end_.prompt_tokens, end_.output_tokens);
}

// False: the client must read more first.
bool Forward::Write(Attempt& attempt, std::string_view bytes) {
  exchange_->Write(bytes);
  if (exchange_->unsent() <= kUnsentBytes) return true;
  exchange_->WhenSent([weak = weak_from_this(), client = attempt.client, call = attempt.call] {
    const auto self = weak.lock();
    if (self && !self->over_) client->Resume(call);
  });
  return false;
}

// Removes the attempt from those in progress. Null: it is not one of them.
std::shared_ptr<Forward::Attempt> Forward::Take(Attempt& attempt) {
  const auto at = std::find_if(attempts_.begin(), attempts_.end(), [&](const auto& a) { return a.get() == &attempt; });
  if (at == attempts_.end()) return nullptr;
  std::shared_ptr<Attempt> held = *at;
  attempts_.erase(at);
  return held;
}

void Forward::OnDone(Attempt& attempt, const Status& status) {
  const std::shared_ptr<Attempt> held = Take(attempt);
  if (over_ || !held) return;
  if (status.code() == StatusCode::kResourceExhausted && leader_ != &attempt) return Short(attempt, status.message());
  if (leader_ == &attempt || attempt.streams) return StreamEnded(attempt, status);
  if (attempt.followed && (!status.ok() || attempt.status / 100 != 2)) {
    return Broken(attempt, status.ok() ? fmt::format("it does not return the rest of the answer ({})", attempt.status)
                                       : status.message());
  }
  if (!status.ok()) return Failed(attempt, status.message(), Why::kLost);
  if (IsRedirect(attempt.status)) {
    const std::string text = fmt::format("it returns {}, a redirect, which is not followed", attempt.status);
    return Failed(attempt, text, Why::kFault);
  }
  if (IsCut(attempt)) return Broken(attempt, kCutText);
  if (Elsewhere(attempt.status)) {
    best_failure_ = held;
    return Failed(attempt, fmt::format("it returns {}", attempt.status),
                  attempt.status == 503 ? Why::kFull : Why::kFault);
  }
  if (const auto moved = MovedBy(attempt.headers)) return Follow(attempt, *moved);
  Answer(attempt);
}

void Forward::StreamEnded(Attempt& attempt, const Status& status) {
  const bool led = leader_ == &attempt;
  const bool taken = led || leader_ == nullptr;
  if (!taken) {  // another was faster
    EndPick(attempt);
    return;
  }
  leader_ = nullptr;
  std::string rest;
  if (attempt.streams && status.ok()) rest = attempt.scan.Rest();
  told_events_ += attempt.scan.events();
  told_finishes_ += attempt.scan.finishes();
  in_event_ = attempt.scan.in_event();
  if (!attempt.scan.first_error().empty()) return ErrorFirst(attempt);
  if (attempt.streams && attempt.scan.moved()) return Follow(attempt, *attempt.scan.moved());
  if (!status.ok()) return Broken(attempt, status.message());
  if (IsCut(attempt)) return Broken(attempt, kCutText);
  if (!led) Lead(attempt);
  if (!rest.empty()) exchange_->Write(rest);
  NoteEvents(attempt);
  if (attempt.scan.failed())
    context_.watch.Failed(attempt.at.replica);
  else
    context_.watch.Succeeded(attempt.at.replica);
  NoteEnd(attempt, attempt.scan.failed() ? RouteRecorder::End::How::kFailed : RouteRecorder::End::How::kCompleted);
  Count(attempt, attempt.status);
  EndPick(attempt);
  exchange_->End();
  End();
}

// Whether an answer that is complete for HTTP is cut: an event stream without [DONE], its API's last event or the last
// finish_reason, or an answer without a length that is not a complete JSON text. Streams of other routes have no known
// last event: HTTP decides.
bool Forward::IsCut(const Attempt& attempt) const {
  const http::HttpRequest& request = exchange_->request();
  if (attempt.status == 204 || request.method == "HEAD") return false;  // they have no body
  if (attempt.streams) {
    const std::string path = api::CanonicalPath(request.path);
    // A response's last event repeats all of its text; the last events of other routes are short.
    const bool long_last = path == "/v1/responses" && attempt.scan.unread() && !attempt.scan.in_event();
    const bool said = attempt.scan.done() || told_finishes_ >= view_.choices || long_last;
    return !said && (attempt.ends_by_closing || EndsByAnEvent(path));
  }
  return attempt.ends_by_closing && !attempt.json.reached();
}

// This process has no file descriptor or memory left: the replica is not at fault, and others would fail too.
void Forward::Short(Attempt& attempt, const std::string& text) {
  Count(attempt, 0);
  EndPick(attempt);
  if (attempts_.empty()) Fail(503, text);
}

// The stream begins with an error event.
void Forward::ErrorFirst(Attempt& attempt) {
  const std::shared_ptr<Forward> self = shared_from_this();
  const std::shared_ptr<Attempt> held = Take(attempt);
  if (leader_ == &attempt) leader_ = nullptr;
  attempt.Drop();
  const std::string message = MessageIn(attempt.scan.first_error()).substr(0, kMessageBytes);
  if (told_events_ > 0) return Broken(attempt, message);
  Failed(attempt, message, Why::kFault);
}

// The connection ended before the answer did.
void Forward::Broken(Attempt& attempt, const std::string& text) {
  const bool told = told_events_ > 0 || in_event_ || (stream_begun_ && !event_stream_);
  if (!told) return Failed(attempt, text, Why::kLost);
  context_.watch.Failed(attempt.at.replica);
  Count(attempt, 0);
  ForgetPick(attempt);
  ++context_.counts.cut_streams;
  Fail(502, fmt::format("replica {} ended within its answer: {}", attempt.at.address, Printable(text)));
}

// The sequence has moved to another replica, which has the rest of its answer.
void Forward::Follow(Attempt& attempt, const Moved& moved) {
  // A malicious replica must not choose where the router connects, nor what it requests there.
  if (!context_.keys) return Broken(attempt, "it moved the request, and this router has no --kv-secret-file");
  if (!ValidTicket(moved.ticket)) return Broken(attempt, "it moved the request without a valid ticket");
  if (++follows_ > kMostFollows)
    return Broken(attempt, "it moved the request, as others did before, without an answer");
  auto there = context_.watch.Moved(moved.url, view_.Route(context_.bytes_per_token));
  if (!there) {
    return Broken(attempt, fmt::format("it moved the request to '{}', not a Tactus replica of this fleet",
                                       moved.url.substr(0, 40)));
  }
  ForgetPick(attempt);
  std::erase(tried_replicas_, attempt.at.replica);  // it has not failed
  context_.counts.migrations["followed"]++;
  http::ClientRequest request;
  request.path = "/fleet/streams/" + moved.ticket;
  request.body = "{}";
  request.headers = SignedHeaders(*context_.keys, "POST", request.path, request.body);
  tried_replicas_.push_back(there->replica);
  const std::string url = there->url;
  auto next = std::make_shared<Attempt>(shared_from_this(), std::move(*there));
  next->followed = true;
  next->before = told_events_;
  Send(std::move(next), url, std::move(request));
}

// Requests that a replica has lost must be sent again. Retries of refused requests add load to busy replicas, so only a
// share of all requests may retry.
bool Forward::MayRetry(Why why) const {
  if (tries_ > context_.options.retries) return false;
  if (why == Why::kLost) return true;
  const double budget = context_.options.retry_budget * static_cast<double>(context_.counts.in_flight);
  return retrying_ || static_cast<double>(context_.counts.retrying) < std::max<double>(kFreeRetries, budget);
}

// The client has received nothing of this answer.
void Forward::Failed(Attempt& attempt, const std::string& text, Why why) {
  if (why != Why::kFull) context_.watch.Failed(attempt.at.replica);
  Count(attempt, why == Why::kLost ? 0 : attempt.status);
  EndPick(attempt);
  last_error_ = fmt::format("replica {}: {}", attempt.at.address, Printable(text));
  if (!attempts_.empty()) return;  // a hedge is in progress
  if (body_ && MayRetry(why) && Try()) {
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
    EndPick(attempt);
  }
  if (stream_begun_) {  // as an event stream, by a replica that sent no event
    return Fail(502, fmt::format("replica {}: it returns {}", attempt.at.address, attempt.status));
  }
  NoteEnd(attempt, HowOf(attempt.status));
  http::HttpResponse response = Head(attempt);
  response.body = std::move(attempt.body);
  exchange_->Respond(std::move(response));
  End();
}

void Forward::Count(Attempt& attempt, int status) {
  context_.counts.answers[{attempt.at.address, status}]++;
  facts_.Ended(attempt.tried, status, context_.clock.NowNs());
}

void Forward::EndPick(Attempt& attempt) {
  if (std::exchange(attempt.ended, true)) return;
  const AnswerScan& scan = attempt.scan;
  const int64_t tokens = scan.output_tokens(attempt.before);
  const bool good = attempt.status / 100 == 2 && tokens > 0;
  context_.watch.Ended(attempt.at.pick, good ? static_cast<int32_t>(std::min<int64_t>(tokens, 1 << 30)) : -1);
  if (!good || scan.prompt_tokens() <= 0 || view_.prompt_tokens > 0 || view_.prompt_bytes < kChunkBytes) return;
  const double ratio = static_cast<double>(view_.prompt_bytes) / static_cast<double>(scan.prompt_tokens());
  context_.bytes_per_token += kFollowUsage * (std::clamp(ratio, 0.5, 16.0) - context_.bytes_per_token);
}

// Ends the pick; the length of this answer is not used.
void Forward::ForgetPick(Attempt& attempt) {
  if (!std::exchange(attempt.ended, true)) context_.watch.Ended(attempt.at.pick, -1);
}

void Forward::Fail(int status, const std::string& message) {
  if (over_) return;
  facts_.Note();
  end_.how = stream_begun_ ? RouteRecorder::End::How::kFailed : HowOf(status);
  const api::Api& api = api::ApiOfPath(exchange_->request().path);
  if (!stream_begun_) {
    http::HttpResponse response;
    response.status = status;
    response.headers = headers_;
    http::AddRetryAfter(&response);
    response.body = api.error_text(status, message, {});
    exchange_->Respond(std::move(response));
  } else if (event_stream_) {
    const int64_t told = told_events_ + (leader_ == nullptr ? 0 : leader_->scan.events());
    exchange_->Write((in_event_ ? "\n\n" : "") + api.error_event(status, message, told));  // without [DONE]
    exchange_->End();
  } else {
    exchange_->Abort();
  }
  End();
}

void Forward::Lost(int32_t replica, TimeNs silent_since_ns) {
  const std::shared_ptr<Forward> self = shared_from_this();
  for (const auto& attempt : std::vector(attempts_)) {
    if (over_ || attempt->at.replica != replica || attempt->heard_ns > silent_since_ns) continue;
    if (attempt->call != 0) attempt->client->Cancel(std::exchange(attempt->call, 0));
    attempt->OnDone(Status(StatusCode::kUnavailable, "it does not respond (--dead-after)"), {}, 0);
  }
}

void Forward::CutOff() {
  Fail(503, "the router is stopping (--shutdown-timeout)");
}

void Forward::Tick(TimeNs now_ns) {
  if (over_ || context_.options.request_timeout.ns <= 0) return;
  if (now_ns - arrival_ns_ < context_.options.request_timeout.ns) return;
  Fail(504, fmt::format("the request took longer than {} ms (--request-timeout)",
                        context_.options.request_timeout.ns / kMillisecond));
}

void Forward::End() {
  if (std::exchange(over_, true)) return;
  if (seen_.number >= 0) {
    const std::string* id = http::FindHeader(headers_, "X-Request-Id");
    context_.recorder->Ended(seen_, end_, id != nullptr ? *id : std::string_view(), context_.clock.NowNs());
  }
  --context_.counts.in_flight;
  if (retrying_) --context_.counts.retrying;
  for (const auto& attempt : attempts_) {
    EndPick(*attempt);
    attempt->Drop();
  }
  attempts_.clear();
  best_failure_.reset();
  leader_ = nullptr;
  body_.reset();
  places_.ReleaseAll();
  exchange_->OnClosed(nullptr);
}

}  // namespace tactus::fleet
