#include "serve/generation.h"

#include <algorithm>
#include <utility>

#include "api/explain_text.h"

namespace tactus::serve {

namespace {

bool WantsSchedule(const http::HttpRequest& request) {
  const std::string* wanted = request.Find("x-tactus-explain");
  return wanted != nullptr && *wanted == "1";
}

}  // namespace

class Generation::PromptSink final : public ResponseSink {
 public:
  PromptSink(std::shared_ptr<Generation> generation, size_t prompt, http::ClientCounts::Places places)
      : generation_(std::move(generation)), prompt_(prompt), places_(std::move(places)) {}
  void OnDelta(const TokenDelta& delta) override {
    if (delta.finish != FinishReason::kNone) places_.Release(1);
    generation_->Guard([&] { generation_->OnDelta(prompt_, delta); });
  }
  void OnPromptLogprobs(const std::vector<std::vector<TokenLogprob>>& rows) override {
    generation_->Guard([&] { generation_->OnPromptLogprobs(prompt_, rows); });
  }
  void OnDone(const Usage& usage) override {
    generation_->Guard([&] { generation_->OnDone(prompt_, usage); });
  }

 private:
  const std::shared_ptr<Generation> generation_;
  const size_t prompt_;
  http::ClientCounts::Places places_;  // one for each choice that runs
};

Generation::Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange,
                       bool chat, std::string request_id, http::Headers headers, Caller caller)
    : Call(std::move(exchange), std::move(headers), context->clock->NowNs(), context->request_timeout_ns,
           std::move(caller.places)),
      context_(std::move(context)),
      chat_(chat),
      request_id_(std::move(request_id)),
      client_(std::move(caller.client)),
      owner_(std::move(caller.owner)),
      cache_salt_(std::move(caller.cache_salt)),
      slo_class_(std::move(caller.slo_class)),
      one_of_many_(caller.one_of_many),
      explained_(WantsSchedule(exchange_->request())) {}

void Generation::Work() {
  auto requests = Prepare();
  if (requests.ok())
    Submit(std::move(*requests));
  else
    Fail(requests.status());
}

Result<api::ParsedRequest> Generation::Parse() {
  api::ParsedRequest parsed;
  {
    const http::Body body = exchange_->TakeBody();  // given back as soon as it is parsed
    TACTUS_ASSIGN_OR_RETURN(parsed, chat_ ? api::ParseChatRequest(body.text(), context_->limits, stop())
                                          : api::ParseCompletionRequest(body.text(), context_->limits, stop()));
  }
  Request& base = parsed.base;
  for (const auto& [name, value] : exchange_->request().headers)
    TACTUS_RETURN_IF_ERROR(api::ApplySloHeader(name, value, &base.slo));
  base.id = request_id_;
  base.arrival_ns = arrival_ns_;
  // Who has a key of its own is that client to the engine: it cannot pass for many by naming users.
  if (base.client.empty() || one_of_many_) base.client = client_;
  if (base.slo_class.empty() && !base.slo.any()) base.slo_class = slo_class_;
  base.owner = owner_;
  // Of fixed length and secret: no cache_salt of one client equals that of another.
  if (!cache_salt_.empty()) base.cache_salt = cache_salt_ + base.cache_salt;
  return parsed;
}

Result<std::vector<Request>> Generation::Prepare() {
  TACTUS_ASSIGN_OR_RETURN(api::ParsedRequest parsed, Parse());
  TACTUS_RETURN_IF_ERROR(TakePlaces(api::SequenceCount(parsed)));
  TACTUS_ASSIGN_OR_RETURN(api::Prepared prepared,
                          api::PrepareConversation(std::move(parsed), *context_->engine, context_->limits, stop()));
  std::lock_guard lock(mutex_);
  if (over()) return Status(StatusCode::kCancelled, "over meanwhile");
  stream_ = prepared.shape.stream;
  // The answer first: whoever finds handles asks it, also when there was no memory for what follows.
  answer_.emplace(*context_->engine, std::move(prepared.shape),
                  api::AnswerIdentity{request_id_, UnixSeconds(), context_->fingerprint},
                  api::ChunkFrame{"data: ", "\n\n"});
  handles_.resize(prepared.requests.size());
  return std::move(prepared.requests);
}

Status Generation::TakePlaces(int64_t sequences) {
  std::lock_guard lock(mutex_);
  if (over()) return Status(StatusCode::kCancelled, "over meanwhile");
  return places_.Add(sequences - places_.count());
}

void Generation::Submit(std::vector<Request> requests) {
  const size_t count = requests.size();
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<PromptSink> sink;
    {
      std::lock_guard lock(mutex_);
      if (over()) return;  // the client went meanwhile
      sink = std::make_shared<PromptSink>(Self(), i, places_.Split(requests[i].n));
    }
    auto handle = context_->engine->Submit(std::move(requests[i]), std::move(sink));
    if (!handle.ok()) return Fail(handle.status());
    bool late = false;
    {
      std::lock_guard lock(mutex_);
      handles_[i] = *handle;
      late = over();
      // Where it may still be refused, its status line waits for the first token, or for the first ping.
      if (!late && stream_ && i + 1 == count && !context_->engine->may_refuse()) BeginStream();
    }
    if (late) context_->engine->Cancel(*handle);  // over before the handle was known
  }
}

void Generation::BeginStream() {
  if (stream_begun_) return;
  next_ping_ns_ = context_->clock->NowNs() + context_->ping_interval_ns;
  http::HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = headers_;
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx passes events on at once
  exchange_->StartStream(std::move(head));
  stream_begun_ = true;  // not before: an error is told in the form that has begun
}

void Generation::OnDelta(size_t prompt, const TokenDelta& delta) {
  std::string chunks;
  Status status;
  {
    std::lock_guard lock(mutex_);
    if (over()) return;
    if (stream_ && api::Answer::Tells(delta)) BeginStream();  // what fails from here on is told in the stream
    status = answer_->OnDelta(prompt, delta, &chunks);
    if (!chunks.empty()) exchange_->Write(chunks);
  }
  if (!status.ok()) Fail(status);
}

void Generation::OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) {
  std::lock_guard lock(mutex_);
  if (!over()) answer_->OnPromptLogprobs(prompt, rows);
}

void Generation::OnDone(size_t prompt, const Usage& usage) {
  // The engine is asked before the mutex is taken. Of several prompts the last one's question has all their schedules.
  std::string schedule = Schedule();
  std::unique_lock lock(mutex_);
  if (over()) return;
  std::string chunks;
  if (answer_->done_but(prompt)) answer_->Explain(std::move(schedule));
  answer_->OnDone(prompt, usage, &chunks);
  if (!answer_->done()) return;
  if (stream_) {
    BeginStream();
    exchange_->Write(chunks + "data: [DONE]\n\n");
    Leave();
    exchange_->End();
  } else {
    http::HttpResponse response;
    response.headers = headers_;
    response.body = std::move(*answer_).Complete();
    Leave();
    exchange_->Respond(std::move(response));
  }
  End(std::move(lock));
}

std::string Generation::Schedule() const {
  if (!explained_) return {};
  const auto prompts = context_->engine->Timelines({.id = request_id_, .owner = owner_, .arrival_ns = arrival_ns_});
  return prompts.empty() ? std::string() : api::ExplainText(prompts);
}

void Generation::AnswerError(const Status& status) {
  if (!stream_begun_) return Call::AnswerError(status);
  exchange_->Write("data: " + api::ErrorText(status) + "\n\n");  // and no [DONE]
  exchange_->End();
}

void Generation::LetGo() {
  for (size_t i = 0;; ++i) {
    RequestHandle handle = 0;
    {
      std::lock_guard lock(mutex_);
      if (i >= handles_.size()) return;
      if (!answer_->done(i)) handle = handles_[i];
    }
    if (handle != 0) context_->engine->Cancel(handle);
  }
}

void Generation::WhileWaiting(TimeNs now_ns) {
  std::lock_guard lock(mutex_);
  if (over() || !stream_ || !answer_ || answer_->begun() || context_->ping_interval_ns <= 0) return;
  const bool submitted = !handles_.empty() && handles_.back() != 0;
  if (!submitted || now_ns < std::max(next_ping_ns_, arrival_ns_ + context_->ping_interval_ns)) return;
  BeginStream();
  next_ping_ns_ = now_ns + context_->ping_interval_ns;
  exchange_->Write(": ping\n\n");
}

}  // namespace tactus::serve
