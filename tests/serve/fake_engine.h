// An engine without a model: every request gets scripted pieces of text, one per pass of a delivery thread. Tests pause
// the passes, make them fail, and read the submitted and cancelled requests.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "fake_feed.h"
#include "tactus/engine.h"

namespace tactus {

// Far longer than a loaded machine needs; only a failing test waits this long.
inline constexpr std::chrono::seconds kAwaitLimit{20};

class FakeEngine final : public Engine {
 public:
  static constexpr int64_t kCompleted = 77;  // RunResult::completed of its result
  FakeEngine() {
    model_.name = "fake";
    model_.path = "/fake";
    model_.architecture = "fake";
    model_.max_model_len = 4096;
    model_.vocab_size = 512;  // 0-255: bytes; the rest: "<n>"
    thread_ = std::thread([this] { Deliver(); });
  }
  ~FakeEngine() override {
    {
      std::lock_guard lock(mutex_);
      quit_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // --- Script ---
  void Hold() { HoldAfter(0); }  // no token from now on
  void Release() { HoldAfter(kNoHold); }
  void HoldAfter(int64_t tokens) {
    Set([=, this] { hold_after_ = tokens; });
  }  // each choice pauses there
  void SetQueueLimit(int64_t limit) {
    Set([=, this] { queue_limit_ = limit; });
  }
  // Refuses a submit once `count` requests have been accepted.
  void RefuseAfter(size_t count, Status why) {
    Set([&] { refuse_after_ = count, refusal_ = std::move(why); });
  }
  // kError after `tokens` tokens of a choice.
  void FailAfter(int64_t tokens, Status why = Internal("the executor failed")) {
    Set([&] { fail_after_ = tokens, fail_status_ = std::move(why); });
  }
  // Choice i ends by length after lengths[i] tokens; without an entry after the request's max_tokens.
  void SetLengths(std::vector<int64_t> lengths) {
    Set([&] { lengths_ = std::move(lengths); });
  }
  // Submitted requests may still be refused (FailAfter(0, ...)).
  void SetMayRefuse() { may_refuse_ = true; }
  void HearNoCancel(bool deaf) {
    Set([=, this] { deaf_ = deaf; });
  }
  // Called by all work on text (templates, tokens); may block, check `stop`, throw.
  void OnText(std::function<void(StopToken stop)> hook) {
    Set([&] { on_text_ = std::move(hook); });
  }
  void SetMigration(MigrationPort* port) { migration_ = port; }  // call before SetEngine
  // LeastTokens returns one token per `bytes` bytes; 0: it returns 0.
  void SetLongestToken(size_t bytes) { longest_token_ = bytes; }
  void SetHealthy(bool healthy) {
    Set([=, this] { healthy_ = healthy; });
  }
  // The oldest step without a result; -1: none.
  void SetStep(int64_t step, TimeNs since_ns = 0, DurationNs predicted_ns = 0) {
    Set([=, this] { step_ = {step, since_ns, predicted_ns}; });
  }
  void SetPieces(std::vector<std::string> pieces) {
    Set([&] { pieces_ = std::move(pieces); });
  }
  // Called inside Submit, after the request was accepted. Set before the first request.
  std::function<void()> on_submit;
  FakeFeed feed;
  std::function<Result<std::string>(const std::string& variables_json)> on_template;  // replaces the fake template
  std::function<Status(const OutputRule& rule, RuleWait* wait)> on_rule;              // in CompileRule
  // --- Results: Await blocks until the condition holds; it throws, which fails the test, after kAwaitLimit.
  template <class Condition>
  void Await(const std::string& what, Condition condition) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kAwaitLimit, condition)) return;
    throw std::runtime_error("no " + what + " in time: " + std::to_string(submitted_.size()) + " submitted, " +
                             std::to_string(live_.size()) + " live, " + std::to_string(cancelled_.size()) +
                             " cancelled");
  }
  void AwaitSubmitted(size_t count) {
    Await(std::to_string(count) + " submitted requests", [&] { return submitted_.size() >= count; });
  }
  void AwaitCancelled(size_t count) {
    Await(std::to_string(count) + " cancelled requests", [&] { return cancelled_.size() >= count; });
  }
  void AwaitLive(size_t count) {
    Await(std::to_string(count) + " live requests", [&] { return live_.size() == count; });
  }
  size_t cancelled() const {
    return Get([this] { return cancelled_.size(); });
  }
  // The number of submits refused because the queue was full.
  int64_t found_full() const {
    return Get([this] { return found_full_; });
  }
  // Live requests with at least one token sent.
  size_t begun() const {
    return Get([this] {
      return static_cast<size_t>(
          std::count_if(live_.begin(), live_.end(), [](const auto& l) { return l.second.begun; }));
    });
  }
  size_t most_live() const {
    return Get([this] { return most_live_; });
  }
  std::vector<Request> submitted() const {
    return Get([this] { return submitted_; });
  }
  std::string last_variables() const {
    return Get([this] { return last_variables_; });
  }

  // --- Engine ---
  LiveFeed* live() override { return &feed; }
  MigrationPort* migration() override { return migration_; }
  bool may_refuse() const override { return may_refuse_; }
  const ModelInfo& model() const override { return model_; }
  ModelInfo& mutable_model() { return model_; }
  std::vector<TokenId> Tokenize(std::string_view text, bool add_special, StopToken stop) const override {
    CallHook(stop);
    if (stop.stopped()) return {};
    std::vector<TokenId> ids;
    if (add_special) ids.push_back(256);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  void CountRefused(const Request&, const Status& why) override {
    Set([&] { refused_.push_back(why.message()); });
  }
  // Messages of requests that front ends refused because they can never fit.
  std::vector<std::string> refused() {
    std::vector<std::string> out;
    Set([&] { out = refused_; });
    return out;
  }
  int64_t LeastTokens(std::string_view text) const override {
    return longest_token_ == 0 ? 0 : static_cast<int64_t>(text.size() / longest_token_);
  }
  std::string Detokenize(const std::vector<TokenId>& tokens) const override {
    std::string text;
    for (const TokenId t : tokens)
      if (t < 256) text.push_back(static_cast<char>(t));
    return text;
  }
  std::string TokenString(TokenId token) const override;
  std::string TokenBytes(TokenId token) const override {
    return token < 256 ? std::string(1, static_cast<char>(token)) : "<" + std::to_string(token) + ">";
  }
  Result<std::string> ApplyChatTemplate(const std::string& variables_json, StopToken stop) const override {
    CallHook(stop);
    if (stop.stopped()) return Status(StatusCode::kCancelled, "stopped");
    if (on_template) return on_template(variables_json);
    std::lock_guard lock(mutex_);
    last_variables_ = variables_json;
    if (variables_json.find("raise") != std::string::npos)
      return InvalidArgument("the chat template says: no", "messages");
    return std::string("chat:");
  }
  // A rule whose text contains "impossible" fails to compile; the grammar of other rules must not be used.
  Result<std::shared_ptr<const TokenGrammar>> CompileRule(const OutputRule& o, StopToken s, RuleWait* w) const override;
  std::vector<TokenId> TokenizeChat(std::string_view rendered, StopToken stop) const override {
    return Tokenize(rendered, false, stop);
  }

  Result<RequestHandle> Submit(Request request, std::shared_ptr<ResponseSink> sink) override {
    const Result<RequestHandle> handle = Take(std::move(request), std::move(sink));
    if (handle.ok() && on_submit) on_submit();
    return handle;
  }
  Result<RequestHandle> Take(Request request, std::shared_ptr<ResponseSink> sink) {
    std::lock_guard lock(mutex_);
    if (draining_) return Status(StatusCode::kUnavailable, "draining");
    if (submitted_.size() >= refuse_after_) return refusal_;
    if (static_cast<int64_t>(live_.size()) >= queue_limit_ && ++found_full_ > 0)
      return Status(StatusCode::kResourceExhausted, "the queue is full");
    const RequestHandle handle = next_++;
    submitted_.push_back(request);
    Live& live = live_[handle];
    live.request = std::move(request);
    live.sink = std::move(sink);
    live.sent.resize(static_cast<size_t>(live.request.n));
    most_live_ = std::max(most_live_, live_.size());
    changed_.notify_all();
    return handle;
  }
  // Every live request counts as one sequence.
  Status WaitForRoom(int32_t sequences, int64_t timeout_ns) override;
  void Cancel(RequestHandle handle) override {
    Set([&] {
      if (live_.count(handle) != 0) cancelled_.insert(handle);
    });
  }
  int64_t Drain(int64_t timeout_ns) override;
  EngineStats Stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.running = static_cast<int64_t>(live_.size());
    stats.healthy = healthy_;
    std::tie(stats.step_in_flight, stats.step_since_ns, stats.step_predicted_ns) = step_;
    return stats;
  }
  std::string LastSteps() const override { return "step 40: fine\nstep 41: slow\n"; }
  // Every submitted request has waited 1 ms in the queue and computed for 2.5 ms.
  std::vector<RequestTimeline> Timelines(const TimelineQuery& query) const override;
  int64_t kept_timelines() const override { return kKeptTimelines; }
  static constexpr int64_t kKeptTimelines = 9;
  std::string MetricsText() const override { return "fake_metric 1\n"; }
  RunResult Outcome() const override {
    RunResult result;
    result.completed = kCompleted;
    return result;
  }

 private:
  struct Live {
    Request request;
    std::shared_ptr<ResponseSink> sink;
    std::vector<int64_t> sent;  // tokens per choice; -1: ended
    int64_t total = 0;
    size_t choices_done = 0;
    bool begun = false;  // guarded by the mutex; the other members belong to the delivery thread
  };
  void CallHook(StopToken stop) const {
    std::function<void(StopToken)> hook;
    {
      std::lock_guard lock(mutex_);
      hook = on_text_;
    }
    if (hook) hook(stop);
  }
  template <class F>
  std::invoke_result_t<F> Get(F f) const {
    std::lock_guard lock(mutex_);
    return f();
  }
  template <class F>
  void Set(F f) {
    std::lock_guard lock(mutex_);
    f();
    changed_.notify_all();
  }

  // The delivery thread: one pass over all live requests sends a token of each choice.
  void Deliver();
  bool Cancelled(RequestHandle handle) const { return !deaf_ && cancelled_.count(handle) != 0; }
  bool Runnable(RequestHandle handle, const Live& live) const;
  void Step(std::unique_lock<std::mutex>* lock, RequestHandle handle, bool cancelled);

  MigrationPort* migration_ = nullptr;
  std::atomic<bool> may_refuse_{false};
  ModelInfo model_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  static constexpr int64_t kNoHold = int64_t{1} << 40;
  bool quit_ = false, draining_ = false, cut_off_ = false, healthy_ = true, deaf_ = false;
  std::tuple<int64_t, TimeNs, DurationNs> step_{-1, 0, 0};
  int64_t hold_after_ = kNoHold, queue_limit_ = 100000, fail_after_ = -1, found_full_ = 0;
  Status fail_status_;
  size_t refuse_after_ = SIZE_MAX;
  Status refusal_;
  std::vector<int64_t> lengths_;
  std::vector<std::string> pieces_ = {"Hel", "lo", " wor", "ld", "!"};
  std::map<RequestHandle, Live> live_;
  std::set<RequestHandle> cancelled_;
  std::vector<Request> submitted_;
  mutable std::string last_variables_;
  std::function<void(StopToken)> on_text_;
  size_t longest_token_ = 0;
  std::vector<std::string> refused_;
  size_t most_live_ = 0;
  RequestHandle next_ = 1;
  std::thread thread_;
};

}  // namespace tactus
