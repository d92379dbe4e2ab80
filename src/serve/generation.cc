#include "serve/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tactus::serve {

class Generation::PromptSink final : public ResponseSink {
 public:
  PromptSink(std::shared_ptr<Generation> generation, size_t prompt, ClientCounts::Places places)
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
  ClientCounts::Places places_;  // one for each choice that runs
};

Generation::Generation(std::shared_ptr<const GenerationContext> context, std::shared_ptr<http::Exchange> exchange,
                       bool chat, std::string request_id, http::Headers headers, Caller caller)
    : Call(std::move(exchange), std::move(headers), context->clock->NowNs(), context->request_timeout_ns,
           std::move(caller.places)),
      context_(std::move(context)),
      chat_(chat),
      request_id_(std::move(request_id)),
      client_(std::move(caller.client)),
      cache_salt_(std::move(caller.cache_salt)) {}

void Generation::Work() {
  Status status = Prepare();
  if (status.ok())
    Submit();
  else
    Fail(status);
}

Status Generation::Prepare() {
  const http::HttpRequest& http = exchange_->request();
  {
    const http::Body body = exchange_->TakeBody();  // given back as soon as it is parsed
    auto parsed = chat_ ? api::ParseChatRequest(body.text(), context_->limits, stop())
                        : api::ParseCompletionRequest(body.text(), context_->limits, stop());
    TACTUS_ASSIGN_OR_RETURN(parsed_, std::move(parsed));
  }
  for (const auto& [name, value] : http.headers)
    TACTUS_RETURN_IF_ERROR(api::ApplySloHeader(name, value, &parsed_.base.slo));
  if (parsed_.base.client.empty()) parsed_.base.client = client_;
  // Of fixed length and secret: no cache_salt of one client equals that of another.
  if (!cache_salt_.empty()) parsed_.base.cache_salt = cache_salt_ + parsed_.base.cache_salt;
  TACTUS_RETURN_IF_ERROR(TakePlaces());
  std::vector<PromptState> prompts;
  if (chat_) {
    TACTUS_ASSIGN_OR_RETURN(const std::string text,
                            context_->engine->ApplyChatTemplate(parsed_.template_variables, stop()));
    TACTUS_RETURN_IF_ERROR(CheckFits(text));
    prompts.emplace_back();
    prompts.back().tokens = std::make_shared<const std::vector<TokenId>>(context_->engine->TokenizeChat(text, stop()));
  } else {
    for (const api::Prompt& prompt : parsed_.prompts) {
      prompts.emplace_back();
      TACTUS_RETURN_IF_ERROR(Tokenise(prompt, &prompts.back()));
    }
  }
  const api::AnswerStyle style{
      .chat = chat_, .logprobs = parsed_.base.sampling.logprobs, .usage_in_chunks = parsed_.include_usage};
  writer_.emplace(*context_->engine, style, (chat_ ? "chatcmpl-" : "cmpl-") + request_id_, UnixSeconds(),
                  context_->fingerprint);
  std::lock_guard lock(mutex_);
  if (over()) return Status(StatusCode::kCancelled, "over meanwhile");
  choices_.resize(prompts.size() * static_cast<size_t>(parsed_.base.n));
  prompts_ = std::move(prompts);
  return Status();
}

Status Generation::TakePlaces() {
  const int64_t prompts = chat_ ? 1 : static_cast<int64_t>(parsed_.prompts.size());
  std::lock_guard lock(mutex_);
  if (over()) return Status(StatusCode::kCancelled, "over meanwhile");
  return places_.Add(prompts * parsed_.base.n - places_.count());
}

Status Generation::Tokenise(const api::Prompt& prompt, PromptState* state) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    TACTUS_RETURN_IF_ERROR(CheckFits(*text));
    state->tokens = std::make_shared<const std::vector<TokenId>>(
        context_->engine->Tokenize(*text, parsed_.add_special_tokens, stop()));
    if (parsed_.echo) state->echo = *text;
  } else {
    const auto& ids = std::get<std::vector<TokenId>>(prompt);
    state->tokens = std::make_shared<const std::vector<TokenId>>(ids);
    if (parsed_.echo) state->echo = context_->engine->Detokenize(ids);
  }
  // The first token has no probability, which NaN stands for; the engine tells those of the others.
  if (parsed_.base.prompt_logprobs && !state->tokens->empty())
    state->echo_logprobs.push_back({TokenLogprob{state->tokens->front(), std::numeric_limits<float>::quiet_NaN()}});
  return Status();
}

Status Generation::CheckFits(std::string_view text) const {
  Status status = api::CheckLeastTokens(parsed_, context_->engine->LeastTokens(text), context_->limits);
  if (!status.ok()) context_->engine->CountRefused(parsed_.base, status);
  return status;
}

void Generation::Submit() {
  const size_t count = prompts_.size();
  std::vector<Request> requests(count, parsed_.base);
  for (size_t i = 0; i < count; ++i) {
    Request& request = requests[i];
    request.id = count == 1 ? request_id_ : fmt::format("{}-{}", request_id_, i);
    request.prompt = prompts_[i].tokens;
    request.arrival_ns = arrival_ns_;
    const Status status =
        api::PlaceInContext(parsed_, static_cast<int64_t>(request.prompt->size()), context_->limits, &request.stop);
    if (!status.ok()) {
      context_->engine->CountRefused(request, status);
      return Fail(status);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<PromptSink> sink;
    {
      std::lock_guard lock(mutex_);
      if (over()) return;  // the client went meanwhile
      sink = std::make_shared<PromptSink>(Self(), i, places_.Split(parsed_.base.n));
    }
    auto handle = context_->engine->Submit(std::move(requests[i]), std::move(sink));
    if (!handle.ok()) return Fail(handle.status());
    bool late = false;
    {
      std::lock_guard lock(mutex_);
      prompts_[i].handle = *handle;
      late = over();
      if (!late && parsed_.stream && i + 1 == count) BeginStream();
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

void Generation::BeginChoice(size_t prompt, int32_t index, std::string* out) {
  ChoiceState& choice = choices_[static_cast<size_t>(index)];
  if (choice.begun) return;
  choice.begun = true;
  if (chat_) writer_->AppendRole(out, index);
  if (parsed_.echo)
    writer_->AppendEcho(out, index, prompts_[prompt].echo, prompts_[prompt].echo_logprobs, &choice.text_offset);
}

void Generation::OnDelta(size_t prompt, const TokenDelta& delta) {
  if (delta.finish == FinishReason::kError || delta.finish == FinishReason::kCancelled) {
    return Fail(delta.error.ok() ? Internal("generation ended without a reason") : delta.error);
  }
  std::lock_guard lock(mutex_);
  if (over()) return;
  produced_ = true;
  const int32_t index = Index(prompt, delta.choice);
  prompts_[prompt].usage.completion_tokens += static_cast<int64_t>(delta.tokens.size());
  if (!parsed_.stream) {
    api::ChoiceText& text = choices_[static_cast<size_t>(index)].text;
    text.text += delta.text;
    text.logprobs.insert(text.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    if (delta.finish != FinishReason::kNone) {
      text.finish = delta.finish;
      text.stop_string = delta.stop_string;
    }
    return;
  }
  // Nothing to tell yet: a character or a stop string is undecided. Logprobs are told with their token.
  if (delta.text.empty() && delta.logprobs.empty() && delta.finish == FinishReason::kNone) return;
  BeginStream();
  std::string out;
  BeginChoice(prompt, index, &out);
  Usage usage;
  if (parsed_.continuous_usage) {
    usage.prompt_tokens = static_cast<int64_t>(prompts_[prompt].tokens->size());
    usage.completion_tokens = prompts_[prompt].usage.completion_tokens;
  }
  writer_->AppendDelta(&out, index, delta, &choices_[static_cast<size_t>(index)].text_offset,
                       parsed_.continuous_usage ? &usage : nullptr);
  exchange_->Write(out);
}

void Generation::OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) {
  std::lock_guard lock(mutex_);
  if (over()) return;
  // Rows come as the prompt is computed, from its second token on.
  PromptState& state = prompts_[prompt];
  auto& all = state.echo_logprobs;
  const size_t room = state.tokens->size() - all.size();
  all.insert(all.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(std::min(room, rows.size())));
}

void Generation::OnDone(size_t prompt, const Usage& usage) {
  std::unique_lock lock(mutex_);
  PromptState& state = prompts_[prompt];
  if (over() || state.done) return;
  state.done = true;
  state.usage = usage;
  if (++prompts_done_ < prompts_.size()) return;
  Usage total;
  for (const PromptState& p : prompts_) {
    total.prompt_tokens += p.usage.prompt_tokens;
    total.cached_tokens += p.usage.cached_tokens;
    total.completion_tokens += p.usage.completion_tokens;
  }
  if (parsed_.stream) {
    BeginStream();
    std::string out;
    if (parsed_.include_usage) writer_->AppendUsage(&out, total);
    out += "data: [DONE]\n\n";
    exchange_->Write(out);
    Leave();
    exchange_->End();
  } else {
    std::vector<api::ChoiceText> texts;
    for (size_t i = 0; i < choices_.size(); ++i) {
      texts.push_back(std::move(choices_[i].text));
      const PromptState& from = prompts_[i / static_cast<size_t>(parsed_.base.n)];
      texts.back().text.insert(0, from.echo);
      texts.back().logprobs.insert(texts.back().logprobs.begin(), from.echo_logprobs.begin(), from.echo_logprobs.end());
    }
    http::HttpResponse response;
    response.headers = headers_;
    response.body = writer_->Whole(texts, total);
    Leave();
    exchange_->Respond(std::move(response));
  }
  End(std::move(lock));
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
      if (i >= prompts_.size()) return;
      if (!prompts_[i].done) handle = prompts_[i].handle;
    }
    if (handle != 0) context_->engine->Cancel(handle);
  }
}

void Generation::WhileWaiting(TimeNs now_ns) {
  std::lock_guard lock(mutex_);
  if (over() || produced_ || !stream_begun_ || context_->ping_interval_ns <= 0 || now_ns < next_ping_ns_) return;
  next_ping_ns_ = now_ns + context_->ping_interval_ns;
  exchange_->Write(": ping\n\n");
}

}  // namespace tactus::serve
