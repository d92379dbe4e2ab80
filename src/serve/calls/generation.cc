#include "serve/calls/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/chat/request_fields.h"
#include "api/explain_text.h"
#include "api/fields/json.h"
#include "serve/calls/timeline_facts.h"

namespace tactus::serve {

namespace {

bool HeaderIsOne(const http::HttpRequest& request, const char* header) {
  const std::string* value = request.Find(header);
  return value != nullptr && *value == "1";
}

}  // namespace

Generation::Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange,
                       const api::Api& api, std::string request_id, http::Headers headers, Caller caller,
                       int64_t created, TimeNs arrival_ns)
    : Call(std::move(exchange), std::move(headers), arrival_ns >= 0 ? arrival_ns : context->clock->NowNs(),
           context->request_timeout_ns, std::move(caller.places)),
      context_(std::move(context)),
      api_(api),
      request_id_(std::move(request_id)),
      client_(std::move(caller.client)),
      owner_(std::move(caller.owner)),
      cache_salt_(std::move(caller.cache_salt)),
      slo_class_(std::move(caller.slo_class)),
      one_of_many_(caller.one_of_many),
      explained_(HeaderIsOne(exchange_->request(), "x-tactus-explain")),
      routed_(context_->movable && HeaderIsOne(exchange_->request(), "x-tactus-route")),
      came_(created != 0),
      created_(created),
      runner_(*context_->engine) {}

void Generation::Work() {
  auto parsed = Parse();
  if (!parsed.ok()) return Fail(parsed.status());
  if (!context_->post_rule || !api::MayFollowRule(*parsed)) return WorkOn(std::move(*parsed));
  // The request may wait for the compilation of its rule and of earlier rules.
  const auto kept = std::make_shared<api::ParsedRequest>(std::move(*parsed));
  context_->post_rule(client_, [self = Self(), kept] {
    if (!self->over()) self->Guard([&] { self->WorkOn(std::move(*kept)); });
  });
}

void Generation::WorkOn(api::ParsedRequest parsed) {
  auto requests = Prepare(std::move(parsed));
  if (requests.ok())
    Submit(std::move(*requests));
  else
    Fail(requests.status());
}

Result<api::ParsedRequest> Generation::Parse() {
  api::ParsedRequest parsed;
  {
    const http::Body body = exchange_->TakeBody();  // freed as soon as it is parsed
    if (routed_) KeepBody(body.text());
    TACTUS_ASSIGN_OR_RETURN(parsed, api_.parse(body.text(), context_->limits, stop()));
  }
  Request& base = parsed.base;
  for (const auto& [name, value] : exchange_->request().headers)
    TACTUS_RETURN_IF_ERROR(api::ApplySloHeader(name, value, &base.slo));
  base.id = request_id_;
  base.arrival_ns = arrival_ns_;
  // For the engine a key is one client, even if its requests name different users.
  if (base.client.empty() || one_of_many_) base.client = client_;
  if (base.slo_class.empty() && !base.slo.any()) base.slo_class = slo_class_;
  base.owner = owner_;
  // The prefix has a fixed length and is secret: no cache_salt of one client equals that of another.
  if (!cache_salt_.empty()) base.cache_salt = cache_salt_ + base.cache_salt;
  parsed.rule_client = client_;
  TACTUS_RETURN_IF_ERROR(TakePlaces(api::SequenceCount(parsed)));
  return parsed;
}

void Generation::KeepBody(std::string_view text) {
  const auto bytes = static_cast<int64_t>(text.size());
  http::Body kept(context_->kept_bodies);
  kept.Expect(text.size());
  const bool is_long = bytes > BodyLimits::kLongestKeptBody;
  const bool fits = !is_long && kept.Append(text);
  std::lock_guard lock(mutex_);
  if (over()) return;
  if (fits) {
    body_ = std::move(kept);
  } else if (is_long) {
    cannot_move_ = fmt::format("its body has {} bytes, and at most {} are kept", bytes, BodyLimits::kLongestKeptBody);
  } else {
    cannot_move_ = fmt::format("its body of {} bytes was not kept, since other bodies use {}", bytes,
                               context_->kept_bodies->limit());
  }
}

Result<std::vector<Request>> Generation::Prepare(api::ParsedRequest parsed) {
  std::vector<std::string> ignored = std::move(parsed.ignored);
  TACTUS_ASSIGN_OR_RETURN(api::Prepared prepared,
                          api::PrepareConversation(std::move(parsed), *context_->engine, context_->limits, stop()));
  std::lock_guard lock(mutex_);
  if (over()) return Status(StatusCode::kCancelled, "over meanwhile");
  stream_ = prepared.shape.stream;
  ignored_ = std::move(ignored);
  if (created_ == 0) created_ = UnixSeconds();
  const Request& first = prepared.requests.front();
  if (!routed_)
    cannot_move_ = "it did not come through a router";
  else if (prepared.requests.size() != 1 || first.n != 1)
    cannot_move_ = "it has several prompts or choices";
  else if (first.prompt_logprobs)
    cannot_move_ = "it echoes logprobs";
  else if (stream_ && api_.numbers_events)
    cannot_move_ = "the events of its stream have numbers";
  if (!cannot_move_.empty()) body_ = http::Body();
  if (context_->noted) NoteBegin(prepared.requests);
  extent_ = {first.priority, first.prompt->size(), false};
  in_engine_.resize(prepared.requests.size());
  auto writer =
      api_.writer(*context_->engine, prepared.shape, api::AnswerIdentity{request_id_, created_, context_->fingerprint});
  answer_.emplace(std::move(prepared.shape), std::move(writer));
  return std::move(prepared.requests);
}

Status Generation::TakePlaces(int64_t sequences) {
  std::lock_guard lock(mutex_);
  if (over()) return Status(StatusCode::kCancelled, "over meanwhile");
  return places_.Add(sequences - places_.count());
}

void Generation::Submit(std::vector<Request> requests) {
  const Status submitted =
      runner_.Submit(requests.size(), Self(), [&](size_t prompt, std::shared_ptr<ResponseSink> sink) {
        Request& request = requests[prompt];
        return WithPlaces(prompt, request.n,
                          [&] { return context_->engine->Submit(std::move(request), std::move(sink)); });
      });
  if (!submitted.ok()) return Fail(submitted);
  // If the engine may still refuse the request, the status line waits for the first token or ping.
  if (!stream_ || context_->engine->may_refuse()) return;
  std::lock_guard lock(mutex_);
  if (!over()) BeginStream();
}

template <class SubmitOne>
Result<RequestHandle> Generation::WithPlaces(size_t prompt, int32_t sequences, SubmitOne submit) {
  {
    std::lock_guard lock(mutex_);
    if (over()) return Status(StatusCode::kCancelled, "over meanwhile");
    in_engine_[prompt] = places_.Split(sequences);
  }
  try {
    auto handle = submit();
    if (!handle.ok()) in_engine_[prompt].ReleaseAll();
    return handle;
  } catch (...) {  // out of memory: the sequences never reached the engine
    in_engine_[prompt].ReleaseAll();
    throw;
  }
}

void Generation::BeginStream() {
  if (stream_begun_) return;
  next_ping_ns_ = context_->clock->NowNs() + context_->ping_interval_ns;
  http::HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = headers_;
  AppendIgnored(ignored_, &head.headers);
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx passes events on at once
  exchange_->StartStream(std::move(head));
  stream_begun_ = true;  // set last: AnswerError then sends errors as stream events
}

void Generation::OnDelta(size_t prompt, const TokenDelta& delta) {
  if (delta.finish != FinishReason::kNone) in_engine_[prompt].Release(1);
  Guard([&] { Write(prompt, delta); });
}

void Generation::Write(size_t prompt, const TokenDelta& delta) {
  if (delta.finish == FinishReason::kMigrated) return Left();
  std::string chunks;
  Status status;
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    if (over()) return;
    heard_ += delta.tokens.size();
    extent_.tokens += delta.tokens.size();
    first = cannot_move_.empty() && !extent_.begun && !delta.tokens.empty() && delta.finish == FinishReason::kNone;
    extent_.begun = extent_.begun || !delta.tokens.empty();
    // Tokens that another replica has already sent are not sent again.
    const bool again = heard_ <= heard_elsewhere_ && delta.finish == FinishReason::kNone;
    if (!again && stream_ && api::Answer::Tells(delta)) BeginStream();  // later errors are sent in the stream
    status = answer_->OnDelta(prompt, delta, &chunks);
    if (!again && !chunks.empty()) exchange_->Write(chunks);
    heard_more_.notify_all();
  }
  if (first && context_->on_first_token) context_->on_first_token(Self());
  if (!status.ok()) Fail(status);
}

// The sequence has left: all its tokens from here are written, and the client gets the address of the rest.
void Generation::Left() {
  std::unique_lock lock(mutex_);
  if (over()) return;
  Leave();
  if (stream_begun_) {
    std::string to, ticket;
    api::AppendJsonString(&to, moved_to_);
    api::AppendJsonString(&ticket, ticket_);
    exchange_->Write(": migrated {\"to\": " + to + ", \"ticket\": " + ticket + "}\n\n");
    exchange_->End();
  } else {
    http::HttpResponse response;
    response.headers = headers_;
    response.headers.emplace_back("x-tactus-migrated", moved_to_ + " " + ticket_);
    exchange_->Respond(std::move(response));
  }
  End(std::move(lock));
}

Result<RequestHandle> Generation::MovableHandle(DurationNs timeout_ns) {
  const RequestHandle handle = over() ? 0 : runner_.AwaitHandle(0, timeout_ns);
  std::lock_guard lock(mutex_);
  if (over() || in_engine_.size() != 1 || handle == 0) return NotFound("the request is not running here");
  if (!cannot_move_.empty()) return InvalidArgument(cannot_move_);
  return handle;
}

Generation::Origin Generation::origin() {
  std::lock_guard lock(mutex_);
  return {api_.name, explained_, std::string(body_.text()), request_id_, client_, owner_, created_};
}

Generation::Extent Generation::extent() {
  std::lock_guard lock(mutex_);
  return extent_;
}

Result<std::vector<std::vector<TokenLogprob>>> Generation::LogprobsOf(size_t tokens, DurationNs timeout_ns) {
  using Rows = std::vector<std::vector<TokenLogprob>>;
  std::unique_lock lock(mutex_);
  if (over() || stream_) return Rows();  // a stream has already sent them
  const bool came =
      heard_more_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return over() || heard_ >= tokens; });
  if (!came) return Status(StatusCode::kDeadlineExceeded, "the tokens so far were not delivered in time");
  if (over()) return Rows();
  return answer_->choice(0).logprobs;
}

bool Generation::WaitForToken(DurationNs timeout_ns) {
  std::unique_lock lock(mutex_);
  heard_more_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return over() || extent_.begun; });
  return extent_.begun;
}

void Generation::MovedTo(std::string url, std::string ticket) {
  std::lock_guard lock(mutex_);
  moved_to_ = std::move(url);
  ticket_ = std::move(ticket);
}

Status Generation::ContinueSequence(MigrationPort& port, uint64_t reservation, MovingSequence sequence) {
  TACTUS_ASSIGN_OR_RETURN(api::ParsedRequest parsed, Parse());
  TACTUS_ASSIGN_OR_RETURN(std::vector<Request> requests, Prepare(std::move(parsed)));
  if (requests.size() != 1 || *requests[0].prompt != *sequence.request.prompt) {
    return InvalidArgument(
        "prompt: the request's text gives other tokens here; give all replicas the same model and chat template");
  }
  sequence.request.output = requests[0].output;
  sequence.request.grammar = requests[0].grammar;
  sequence.request.shown_specials = requests[0].shown_specials;
  // The previous replica has sent the stream's logprobs; these rows only need the tokens.
  if (sequence.request.sampling.logprobs >= 0 && sequence.logprobs.size() != sequence.output.size()) {
    sequence.logprobs.clear();
    for (const TokenId token : sequence.output) sequence.logprobs.push_back({TokenLogprob{token, 0.0f}});
  }
  {
    std::lock_guard lock(mutex_);
    heard_elsewhere_ = stream_ ? sequence.output.size() : 0;
    extent_.begun = !sequence.output.empty();
  }
  return runner_.Submit(1, Self(), [&](size_t prompt, std::shared_ptr<ResponseSink> sink) {
    return WithPlaces(prompt, 1, [&] { return port.Arrive(reservation, std::move(sequence), std::move(sink)); });
  });
}

void Generation::OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) {
  Guard([&] {
    std::lock_guard lock(mutex_);
    if (!over()) answer_->OnPromptLogprobs(prompt, rows);
  });
}

void Generation::OnDone(size_t prompt, const Usage& usage) {
  Guard([&] { Finish(prompt, usage); });
}

void Generation::Finish(size_t prompt, const Usage& usage) {
  // Calls the engine before taking the mutex. With several prompts, the last OnDone has the schedules of all.
  std::string schedule = Schedule();
  const std::optional<RequestTimeline> timeline = ReportedTimeline(prompt);
  std::unique_lock lock(mutex_);
  if (over()) return;
  if (context_->noted) NoteUsage(usage, timeline);
  std::string chunks;
  if (answer_->done_but(prompt)) answer_->Explain(std::move(schedule));
  answer_->OnDone(prompt, usage, &chunks);
  if (!answer_->done()) return;
  if (stream_) {
    BeginStream();
    exchange_->Write(chunks.append(api_.stream_end));
    Leave();
    exchange_->End();
  } else {
    http::HttpResponse response;
    response.headers = headers_;
    AppendIgnored(ignored_, &response.headers);
    response.body = std::move(*answer_).Complete();
    Leave();
    exchange_->Respond(std::move(response));
  }
  End(std::move(lock));
}

std::optional<RequestTimeline> Generation::ReportedTimeline(size_t prompt) const {
  if (!context_->noted) return std::nullopt;
  const RequestHandle handle = runner_.accepted_handle(prompt);
  // The engine may answer before the thread that submits has stored the handle.
  const TimelineQuery by_id{.id = request_id_, .owner = owner_, .arrival_ns = came_ ? -1 : arrival_ns_};
  auto timelines = context_->engine->Timelines(handle != 0 ? TimelineQuery{.handle = handle} : by_id);
  return timelines.empty() ? std::nullopt : std::optional(std::move(timelines.front()));
}

void Generation::NoteBegin(const std::vector<Request>& requests) {
  const Request& first = requests.front();
  facts_.client = owner_;
  facts_.model = context_->engine->model().name;
  facts_.stream = stream_;
  facts_.max_tokens = first.stop.max_tokens;
  facts_.choices = first.n;
  facts_.prompt_tokens = facts_.cached_tokens = facts_.output_tokens = 0;
  for (const Request& request : requests) facts_.prompt_tokens += static_cast<int64_t>(request.prompt->size());
  facts_.trace = http::BeginTrace(exchange_->request());
  exchange_->Note(facts_);
}

// With several prompts the times are those of the prompt that ends last.
void Generation::NoteUsage(const Usage& usage, const std::optional<RequestTimeline>& timeline) {
  facts_.cached_tokens += usage.cached_tokens;
  facts_.output_tokens += usage.completion_tokens;
  if (timeline) {
    http::RequestFacts timed = facts_;
    timed.missed.clear();
    timed.queue_ns = timed.ttft_ns = timed.longest_gap_ns = -1;
    AddTimeline(*timeline, &timed);
    facts_ = std::move(timed);
  }
  exchange_->Note(facts_);
}

std::string Generation::Schedule() const {
  if (!explained_) return {};
  // The arrival of a request from another replica is derived from its age, so it is not exact to the nanosecond.
  const TimeNs arrival_ns = came_ ? -1 : arrival_ns_;
  const auto prompts = context_->engine->Timelines({.id = request_id_, .owner = owner_, .arrival_ns = arrival_ns});
  return prompts.empty() ? std::string() : api::ExplainText(prompts);
}

void Generation::AnswerError(const Status& status) {
  if (context_->noted) {
    facts_.finish = "error";
    facts_.cause = StatusCodeName(status.code());
    exchange_->Note(facts_);
  }
  if (!stream_begun_) return Call::AnswerError(status);
  std::string chunk;
  answer_->AppendError(&chunk, status);
  exchange_->Write(chunk);  // without [DONE]
  exchange_->End();
}

void Generation::LetGo() {
  heard_more_.notify_all();
  {
    std::lock_guard lock(mutex_);
    body_ = http::Body();
  }
  runner_.Cancel();
}

void Generation::WhileWaiting(TimeNs now_ns) {
  std::lock_guard lock(mutex_);
  if (over() || !stream_ || !answer_ || answer_->begun() || context_->ping_interval_ns <= 0) return;
  if (!runner_.submitted() || now_ns < std::max(next_ping_ns_, arrival_ns_ + context_->ping_interval_ns)) return;
  BeginStream();
  next_ping_ns_ = now_ns + context_->ping_interval_ns;
  exchange_->Write(": ping\n\n");
}

}  // namespace tactus::serve
