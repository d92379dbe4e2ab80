// Order, cancellation and end of a conversation's requests, with a scripted engine.
#include "api/chat/conversation_runner.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/fake_engine.h"

namespace tactus::api {
namespace {

Request PromptOf(TokenId token, int64_t max_tokens = 2) {
  Request request;
  request.prompt = std::make_shared<const std::vector<TokenId>>(3, token);
  request.prompt_logprobs = true;
  request.sampling.logprobs = 0;
  request.stop.max_tokens = max_tokens;
  return request;
}

// Writes a letter per event: P prompt logprobs, L last delta, D done, R refused, E end; P, L and D with the number of
// their prompt.
class EventLog final : public ConversationRunner::User, public std::enable_shared_from_this<EventLog> {
 public:
  explicit EventLog(FakeEngine& engine) : runner(engine), engine_(engine) {}

  Status Submit(std::vector<Request> requests) {
    return runner.Submit(requests.size(), shared_from_this(), [&](size_t prompt, std::shared_ptr<ResponseSink> sink) {
      return engine_.Submit(requests[prompt], std::move(sink));
    });
  }
  void OnDelta(size_t prompt, const TokenDelta& delta) override {
    if (delta.finish != FinishReason::kNone) Write('L', prompt);
  }
  void OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>&) override { Write('P', prompt); }
  void OnDone(size_t prompt, const Usage&) override {
    Write('D', prompt);
    if (cancels_when_done) runner.Cancel();
  }
  void OnRefused(const Status&) override {
    std::lock_guard lock(mutex_);
    events_ += 'R';
    cancelled_at_refusal_ = engine_.cancelled();
  }
  void OnEnd(const Status& submitted) override {
    std::lock_guard lock(mutex_);
    end_ = submitted;
    events_ += 'E';
    ++ends_;
    changed_.notify_all();
  }
  void AwaitEnd() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kAwaitLimit, [this] { return ends_ > 0; }));
  }
  std::string events() const {
    std::lock_guard lock(mutex_);
    return events_;
  }
  Status end() const {
    std::lock_guard lock(mutex_);
    return end_;
  }

  size_t cancelled_at_refusal() const {
    std::lock_guard lock(mutex_);
    return cancelled_at_refusal_;
  }

  ConversationRunner runner;
  bool cancels_when_done = false;

 private:
  void Write(char event, size_t prompt) {
    std::lock_guard lock(mutex_);
    events_ += event;
    events_ += static_cast<char>('0' + prompt);
  }

  FakeEngine& engine_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string events_;
  Status end_;
  int ends_ = 0;
  size_t cancelled_at_refusal_ = 0;
};

struct Conversed {
  FakeEngine engine;
  const std::shared_ptr<EventLog> log = std::make_shared<EventLog>(engine);
};

TEST(ConversationRunner, EventsHaveTheNumberOfTheirPromptAndOneEndFollows) {
  Conversed s;
  s.engine.Hold();
  ASSERT_TRUE(s.log->Submit({PromptOf(1), PromptOf(2, 3)}).ok());
  EXPECT_TRUE(s.log->runner.submitted());
  EXPECT_EQ(s.log->runner.handle(0), 1u);
  EXPECT_EQ(s.log->runner.handle(1), 2u);
  s.engine.Release();
  s.log->AwaitEnd();
  s.engine.AwaitLive(0);
  EXPECT_EQ(s.log->events(), "P0P0P1P1L0D0L1D1E");
  EXPECT_TRUE(s.log->end().ok());
  EXPECT_EQ(s.log->runner.handle(0), 0u);
}

TEST(ConversationRunner, RefusedPromptCancelsTheSubmittedOnesAndEndsAfterThem) {
  Conversed s;
  s.engine.Hold();
  s.engine.HearNoCancel(true);
  s.engine.SetQueueLimit(1);
  EXPECT_EQ(s.log->Submit({PromptOf(1), PromptOf(2), PromptOf(3)}).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(s.engine.submitted().size(), 1u);
  EXPECT_EQ(s.engine.cancelled(), 1u);
  EXPECT_FALSE(s.log->runner.submitted());
  EXPECT_EQ(s.log->events(), "R");  // the first prompt runs
  EXPECT_EQ(s.log->cancelled_at_refusal(), 0u) << "the refusal is reported before the first prompt is cancelled";
  s.engine.HearNoCancel(false);
  s.log->AwaitEnd();
  EXPECT_EQ(s.log->events().substr(s.log->events().size() - 5), "L0D0E");
  EXPECT_EQ(s.log->end().code(), StatusCode::kResourceExhausted);
}

TEST(ConversationRunner, ConversationWhoseFirstPromptIsRefusedEndsInSubmit) {
  Conversed s;
  s.engine.SetQueueLimit(0);
  EXPECT_FALSE(s.log->Submit({PromptOf(1), PromptOf(2)}).ok());
  EXPECT_EQ(s.log->events(), "E");
  EXPECT_EQ(s.log->end().code(), StatusCode::kResourceExhausted);
}

TEST(ConversationRunner, CancelBeforeTheHandleIsKnownReachesTheEngine) {
  Conversed s;
  s.engine.Hold();
  s.engine.on_submit = [&] { s.log->runner.Cancel(); };
  EXPECT_TRUE(s.log->Submit({PromptOf(1)}).ok());
  EXPECT_EQ(s.engine.cancelled(), 1u);
  s.log->AwaitEnd();
  EXPECT_TRUE(s.log->end().ok());
}

TEST(ConversationRunner, CancelWithinSubmitKeepsFurtherPromptsFromTheEngine) {
  Conversed s;
  s.engine.Hold();
  s.engine.on_submit = [&] { s.log->runner.Cancel(); };
  EXPECT_EQ(s.log->Submit({PromptOf(1), PromptOf(2)}).code(), StatusCode::kCancelled);
  EXPECT_EQ(s.engine.submitted().size(), 1u);
  s.log->AwaitEnd();
  EXPECT_EQ(s.log->end().code(), StatusCode::kCancelled);
}

TEST(ConversationRunner, CancelBeforeSubmitKeepsEveryPromptFromTheEngine) {
  Conversed s;
  s.log->runner.Cancel();
  EXPECT_EQ(s.log->Submit({PromptOf(1)}).code(), StatusCode::kCancelled);
  EXPECT_EQ(s.engine.submitted().size(), 0u);
  EXPECT_EQ(s.log->events(), "E");
}

TEST(ConversationRunner, CancelReachesOnlyPromptsThatHaveNotEnded) {
  Conversed s;
  s.log->cancels_when_done = true;
  s.engine.Hold();
  ASSERT_TRUE(s.log->Submit({PromptOf(1, 1), PromptOf(2, 2)}).ok());
  s.engine.Release();
  s.log->AwaitEnd();
  EXPECT_EQ(s.engine.cancelled(), 1u);  // the second, when the first is done
}

}  // namespace
}  // namespace tactus::api
