#include "cli/commands/talk.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "api/chat/answer.h"
#include "api/chat/conversation_runner.h"
#include "base/clock.h"
#include "cli/options/interrupt.h"
#include "compute/config/sampling_defaults.h"

namespace tactus::cli {
namespace {

constexpr int64_t kAnswerShare = 4;  // 1/4 of the context is kept free for an answer before older messages are kept

// Prints the answer as it is streamed and lets the main thread wait for its end.
class TerminalAnswer final : public api::ConversationRunner::User {
 public:
  TerminalAnswer(Engine& engine, api::AnswerShape shape, Clock& clock)
      : runner_(engine), clock_(clock), start_ns_(clock.NowNs()), answer_(engine, std::move(shape), {}) {}
  api::ConversationRunner& runner() { return runner_; }

  void OnDelta(size_t prompt, const TokenDelta& delta) override {
    std::lock_guard lock(mutex_);
    if (first_ns_ == 0 && !delta.tokens.empty()) first_ns_ = clock_.NowNs();
    if (Status status = answer_.OnDelta(prompt, delta, nullptr); !status.ok()) status_ = std::move(status);
    Print();
  }
  void OnDone(size_t prompt, const Usage& usage) override {
    std::lock_guard lock(mutex_);
    answer_.OnDone(prompt, usage, nullptr);
    end_ns_ = clock_.NowNs();
    changed_.notify_all();
  }
  // True once done; waits at most 50 ms so that the caller can check for Ctrl-C.
  bool WaitShortly() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return answer_.done(); });
  }
  // --- After the end ---
  std::string text() const { return api::TextOf(answer_.choice(0).parts); }
  const Status& status() const { return status_; }
  std::string Summary() const {
    const Usage usage = answer_.usage();
    const double ttft_ms = static_cast<double>(first_ns_ - start_ns_) * 1e-6;
    const double decode_s = static_cast<double>(end_ns_ - first_ns_) * 1e-9;
    const int64_t tokens = usage.completion_tokens;
    return fmt::format("{} prompt tokens ({} cached), first token after {:.0f} ms, {} tokens at {:.1f}/s",
                       usage.prompt_tokens, usage.cached_tokens, ttft_ms, tokens,
                       tokens > 1 && decode_s > 0 ? static_cast<double>(tokens - 1) / decode_s : 0.0);
  }

 private:
  // Prints the new parts: the reasoning to stderr, so that stdout has only the answer.
  void Print() {
    for (const api::AnswerPart& part : answer_.parts()) {
      const bool thought = part.kind == api::AnswerPart::Kind::kReasoning;
      std::FILE* out = thought ? stderr : stdout;
      if (thinking_ && !thought) std::fputs("\n", stderr);
      thinking_ = thought;
      std::fwrite(part.text.data(), 1, part.text.size(), out);
      std::fflush(out);
    }
  }

  api::ConversationRunner runner_;
  Clock& clock_;
  bool thinking_ = false;  // reasoning was printed last
  std::mutex mutex_;
  std::condition_variable changed_;
  const TimeNs start_ns_;
  TimeNs first_ns_ = 0, end_ns_ = 0;
  api::Answer answer_;
  Status status_;
};

}  // namespace

Talk::Talk(Engine& engine, int64_t default_max_tokens, bool on_terminal)
    : engine_(engine), limits_(api::LimitsOf(engine, default_max_tokens)), on_terminal_(on_terminal) {}

void Talk::Clear() {
  messages_.clear();
}

void Talk::SetSystem(const std::string& text) {
  system_ = text;
}

SamplingParams Talk::Sampling() const {
  SamplingParams s = limits_.generation_defaults;
  compute::ApplySampling(settings_.sampling, &s);
  s.logprobs = -1;
  if (settings_.seed) {
    s.seed = static_cast<uint64_t>(*settings_.seed);
    s.has_seed = true;
  }
  return s;
}

std::vector<api::ChatMessage> Talk::Messages() const {
  std::vector<api::ChatMessage> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

// Applies the settings to the request.
Result<api::Prepared> Talk::Prepare(api::ParsedRequest asked) {
  asked.base.sampling = Sampling();
  if (settings_.max_tokens > 0) asked.default_max_tokens = settings_.max_tokens;   // less if the context has less room
  return api::PrepareConversation(std::move(asked), engine_, limits_, {}, false);  // attempts do not count in metrics
}

Result<api::Prepared> Talk::PrepareToFit(int64_t* left_out) {
  const int64_t share = limits_.max_model_len / kAnswerShare;
  const int64_t room = std::min(settings_.max_tokens > 0 ? settings_.max_tokens : limits_.default_max_tokens, share);
  const std::vector<api::ChatMessage> whole = messages_;
  while (true) {
    auto prepared = Prepare(api::ChatOf(Messages(), limits_));
    const bool too_long = !prepared.ok() && prepared.status().code() == StatusCode::kInvalidArgument;
    const bool fits = prepared.ok() && prepared->requests[0].stop.max_tokens >= room;
    if (fits || (!prepared.ok() && !too_long)) return prepared;
    if (messages_.size() == 1) {  // only the question is left
      if (prepared.ok()) return prepared;
      messages_ = whole;
      *left_out = 0;
      return prepared;
    }
    // Removes a question and its answer.
    const auto next = std::find_if(messages_.begin() + 1, messages_.end(),
                                   [](const api::ChatMessage& message) { return message.role == "user"; });
    *left_out += next - messages_.begin();
    messages_.erase(messages_.begin(), next);
  }
}

Asked Talk::Ask(const std::string& question) {
  Asked asked;
  messages_.push_back({"user", question});
  auto prepared = PrepareToFit(&asked.left_out);
  std::string text;
  if (prepared.ok())
    Generate(std::move(prepared).value(), &text, &asked);
  else
    asked.status = prepared.status();
  if (asked.status.ok())
    messages_.push_back({"assistant", std::move(text)});
  else
    messages_.pop_back();
  return asked;
}

Asked Talk::Continue(const std::string& start) {
  Asked asked;
  auto prepared = Prepare(api::ContinuationOf(start, limits_));
  std::string text;
  if (prepared.ok())
    Generate(std::move(prepared).value(), &text, &asked);
  else
    asked.status = prepared.status();
  return asked;
}

void Talk::Generate(api::Prepared prepared, std::string* text, Asked* asked) {
  const auto answer = std::make_shared<TerminalAnswer>(engine_, std::move(prepared.shape), SystemClock());
  asked->status = answer->runner().Submit(1, answer, [&](size_t prompt, std::shared_ptr<ResponseSink> sink) {
    return engine_.Submit(std::move(prepared.requests[prompt]), std::move(sink));
  });
  if (!asked->status.ok()) return;
  bool cancelled = false;
  while (!answer->WaitShortly()) {
    // Nor can an answer be used that cannot be printed.
    if ((InterruptCount() == 0 && std::ferror(stdout) == 0) || cancelled) continue;
    asked->interrupted = InterruptCount() > 0;
    answer->runner().Cancel();
    cancelled = true;
    if (on_terminal_) ClearInterrupt();  // a repeated Ctrl-C stops the answer, not the chat
  }
  *text = answer->text();
  asked->summary = answer->Summary();
  if (!cancelled) asked->status = answer->status();
}

}  // namespace tactus::cli
