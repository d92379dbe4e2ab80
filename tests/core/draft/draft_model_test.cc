// A draft model over the fake executor, whose tokens depend on all tokens before: a guess from wrong KV would differ.
#include "core/draft/draft_model.h"

#include <gtest/gtest.h>

#include "support/fake_executor.h"

namespace tactus::core {
namespace {

constexpr int32_t kBlock = 4, kMost = 4, kVocab = 64;

struct Sequence {
  Request request;
  std::vector<TokenId> output, guesses;
};

// Reports a duration of `step_ns` for every step of `inner`, by a clock that advances only then.
class TimedExecutor final : public Executor {
 public:
  explicit TimedExecutor(std::unique_ptr<FakeExecutor> inner) : inner_(std::move(inner)) {}
  ExecutorTraits traits() const override { return inner_->traits(); }
  void Submit(const StepPlan& plan) override { inner_->Submit(plan); }
  bool Poll(StepResult* result) override {
    if (!inner_->Poll(result)) return false;
    result->start_ns = now_ns;
    result->end_ns = now_ns += step_ns;
    return true;
  }
  void SetWakeup(std::function<void()> wakeup) override { inner_->SetWakeup(std::move(wakeup)); }

  TimeNs now_ns = 0;
  DurationNs step_ns = 1000;

 private:
  const std::unique_ptr<FakeExecutor> inner_;
};

class DraftModelTest : public ::testing::Test {
 protected:
  void Make(int64_t blocks = 100, int64_t step_tokens = 64, int64_t context = 200) {
    config_.num_blocks = blocks;
    config_.block_size = kBlock;
    config_.max_slots = 8;
    config_.vocab_size = kVocab;
    ExecutorSize size;
    size.num_blocks = blocks;
    size.block_size = kBlock;
    size.max_model_len = context;
    size.max_slots = 8;
    size.max_step_tokens = step_tokens;
    size.max_step_items = 4;
    auto executor = std::make_unique<FakeExecutor>(config_);
    executor_ = executor.get();
    auto timed = std::make_unique<TimedExecutor>(std::move(executor));
    timed_ = timed.get();
    model_ = std::make_unique<DraftModel>(nullptr, std::move(timed), size, kVocab, kMost);
  }
  void Begin(SlotId slot, int32_t prompt) {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < prompt; ++i) tokens.push_back((slot * 17 + i * 5) % kVocab);
    Sequence& s = sequences_[static_cast<size_t>(slot)];
    s = {};
    s.request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(tokens));
    s.request.stop.max_tokens = 100;
    model_->Begin(slot, s.request, {});
  }
  std::vector<TokenId> Text(SlotId slot) const {
    const Sequence& s = sequences_[static_cast<size_t>(slot)];
    std::vector<TokenId> text = *s.request.prompt;
    text.insert(text.end(), s.output.begin(), s.output.end());
    return text;
  }
  // The next tokens of the fake model.
  std::vector<TokenId> Right(SlotId slot, int32_t count) const {
    std::vector<TokenId> text = Text(slot), right;
    for (int32_t i = 0; i < count; ++i) {
      right.push_back(FakeExecutor::Expected(config_, text, 0));
      text.push_back(right.back());
    }
    return right;
  }
  // Proposes for all of these, each with one more token.
  std::vector<DraftTask> Ask(const std::vector<std::pair<SlotId, TokenId>>& came, int32_t most = kMost,
                             double least_chance = 0) {
    std::vector<DraftTask> tasks;
    for (const auto& [slot, token] : came) {
      Sequence& s = sequences_[static_cast<size_t>(slot)];
      s.output.push_back(token);
      s.guesses.clear();
      tasks.push_back({.slot = slot,
                       .prompt = *s.request.prompt,
                       .output = s.output,
                       .most = most,
                       .least_chance = least_chance,
                       .tokens = &s.guesses});
    }
    model_->Propose(tasks);
    EXPECT_EQ(executor_->violation(), "");
    return tasks;
  }
  const std::vector<TokenId>& Guesses(SlotId slot) const { return sequences_[static_cast<size_t>(slot)].guesses; }

  FakeExecutorConfig config_;
  FakeExecutor* executor_ = nullptr;
  TimedExecutor* timed_ = nullptr;
  std::unique_ptr<DraftModel> model_;
  std::array<Sequence, 8> sequences_;
};

TEST_F(DraftModelTest, GuessesAreTheModelsOutput) {
  Make();
  Begin(3, 10);
  const auto tasks = Ask({{3, 7}});
  EXPECT_EQ(Guesses(3), Right(3, kMost));
  EXPECT_TRUE(tasks[0].waits);
  EXPECT_EQ(tasks[0].kind, DraftKind::kModel);
  EXPECT_EQ(executor_->steps(), kMost) << "one step for the prompt and the first guess, one for each further guess";
}

// For any number of right guesses, and any token instead of the first wrong one.
TEST_F(DraftModelTest, ContinuesFromReceivedTokens) {
  Make();
  Begin(0, 9);
  Ask({{0, 1}});
  for (int round = 0; round < 12; ++round) {
    Sequence& s = sequences_[0];
    const std::vector<TokenId> guesses = s.guesses;
    for (int i = 0; i < round % (kMost + 1); ++i) s.output.push_back(guesses[static_cast<size_t>(i)]);
    const bool all = round % (kMost + 1) == kMost;
    Ask({{0, all ? 5 : (guesses[static_cast<size_t>(round % (kMost + 1))] + round % 2) % kVocab}});
    const int32_t came = 1 + round % (kMost + 1);
    ASSERT_EQ(Guesses(0), Right(0, std::min(kMost, 2 * came))) << "round " << round;
  }
}

// Wrong guesses waste steps: with one new token per call it makes two guesses, and more again with more new tokens.
TEST_F(DraftModelTest, GuessesAreAtMostTwiceTheNewTokens) {
  Make();
  Begin(0, 5);
  Ask({{0, 1}});
  EXPECT_EQ(executor_->steps(), kMost);
  Ask({{0, 2}});
  EXPECT_EQ(Guesses(0), Right(0, 2));
  EXPECT_EQ(executor_->steps(), kMost + 2);
  sequences_[0].output.push_back(Guesses(0)[0]);
  Ask({{0, 3}});
  EXPECT_EQ(Guesses(0), Right(0, 4));
}

// While no step would verify a guess it computes nothing, not even the tokens that it lacks; later it catches up.
TEST_F(DraftModelTest, ComputesNothingBelowLeastChance) {
  Make();
  Begin(0, 9);
  for (TokenId t = 1; t < 6; ++t) EXPECT_FALSE(Ask({{0, t}}, kMost, 0.61)[0].waits) << "the prior is 0.6";
  EXPECT_EQ(executor_->steps(), 0);
  Ask({{0, 6}}, kMost, 0.59);
  EXPECT_EQ(Guesses(0), Right(0, kMost));
}

// A round takes a quarter of a step of the served model, so the chance of a guess must be higher by that much.
TEST_F(DraftModelTest, OwnCostRaisesLeastChance) {
  Make();
  Begin(0, 9);
  Ask({{0, 1}});
  for (int i = 0; i < 40; ++i) {  // two of three are right
    timed_->now_ns += 4000;
    const std::vector<TokenId> guesses = Guesses(0);
    ASSERT_GE(guesses.size(), 2U) << i;
    if (i % 2 == 0) sequences_[0].output.push_back(guesses[0]);
    Ask({{0, i % 2 == 0 ? guesses[1] : (guesses[0] + 1) % kVocab}});
  }
  const int64_t steps = executor_->steps();
  timed_->now_ns += 4000;
  EXPECT_TRUE(Ask({{0, 1}}, kMost, 0.01)[0].waits);
  EXPECT_GT(executor_->steps(), steps);
  timed_->now_ns += 4000;
  EXPECT_FALSE(Ask({{0, 1}}, kMost, 0.6)[0].waits) << "0.6 plus a quarter is more than two thirds";
}

// The first rounds took as long as a step of the served model, for an external reason.
TEST_F(DraftModelTest, SlowFirstRoundsAreRetried) {
  Make(200, 64, 500);
  Begin(0, 9);
  const auto ask = [&] {
    timed_->now_ns += 4000;
    return Ask({{0, Right(0, 1)[0]}}, kMost, 0.3)[0].waits;
  };
  timed_->step_ns = 4000;
  ask();
  ask();
  ASSERT_FALSE(ask()) << "even a sure guess is below 0.3 plus the cost of a step";
  timed_->step_ns = 400;
  int32_t asked = 0, guessed = 0;
  for (; asked < 300 && !ask(); ++asked) {
  }
  EXPECT_LT(asked, 300) << "it was never retried";
  for (int i = 0; i < 100; ++i) guessed += ask() ? 1 : 0;
  EXPECT_GT(guessed, 90) << "its time has been measured again, and its guesses are right";
}

// Retries of a model that is really slow cost little and become rarer.
TEST_F(DraftModelTest, RetriesOfSlowModelCostLittle) {
  Make();
  timed_->step_ns = 4000;
  constexpr int kTokens = 5000, kAnswer = 50;
  int64_t half = 0;
  for (int i = 0; i < kTokens; ++i) {
    if (i % kAnswer == 0) Begin(0, 9);
    timed_->now_ns += 4000;
    Ask({{0, i % kVocab}}, kMost, 0.3);
    if (i % kAnswer == kAnswer - 1) model_->End(0);
    if (i == kTokens / 2) half = executor_->steps();
  }
  EXPECT_GT(executor_->steps(), 2 * kMost) << "it was never retried";
  EXPECT_LT(executor_->steps(), kTokens / 100) << "draft steps for " << kTokens << " steps of the served model";
  EXPECT_LT(executor_->steps() - half, half) << "in the second half";
}

TEST_F(DraftModelTest, SequencesAreBatched) {
  Make();
  for (SlotId s = 0; s < 4; ++s) Begin(s, 5 + s);
  Ask({{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  EXPECT_EQ(executor_->steps(), kMost);
  for (SlotId s = 0; s < 4; ++s) EXPECT_EQ(Guesses(s), Right(s, kMost)) << "slot " << s;
  Ask({{2, 9}, {0, 9}}, 2);
  EXPECT_EQ(Guesses(0), Right(0, 2));
  EXPECT_EQ(Guesses(2), Right(2, 2));
}

// A prompt longer than a step is computed in chunks; its sequence has no guesses before the last one.
TEST_F(DraftModelTest, LongPromptIsComputedInChunks) {
  Make(100, 16);
  Begin(0, 40);
  EXPECT_TRUE(Ask({{0, 1}})[0].waits);
  EXPECT_TRUE(Guesses(0).empty());
  Ask({{0, 2}});
  EXPECT_TRUE(Guesses(0).empty());
  Ask({{0, 3}});
  EXPECT_EQ(Guesses(0), Right(0, kMost));
  EXPECT_EQ(executor_->steps(), 2 + kMost);
}

TEST_F(DraftModelTest, SequenceWithoutBlocksHasNoGuessesUntilSomeAreFreed) {
  Make(6);
  Begin(0, 14);  // 19 tokens with the guesses: five blocks
  Begin(1, 14);
  Ask({{0, 1}, {1, 1}});
  EXPECT_EQ(Guesses(0), Right(0, kMost));
  EXPECT_TRUE(Guesses(1).empty());
  EXPECT_EQ(model_->blocks_free(), 1);
  model_->End(0);
  EXPECT_EQ(model_->blocks_free(), 6);
  Ask({{1, 2}});
  EXPECT_EQ(Guesses(1), Right(1, kMost));
  model_->End(1);
  Begin(0, 3);  // the slot's next sequence
  Ask({{0, 5}});
  EXPECT_EQ(Guesses(0), Right(0, kMost));
}

// A sequence with wrong guesses is skipped and retried later.
TEST_F(DraftModelTest, SequenceWithWrongGuessesIsSkippedAndRetried) {
  Make();
  Begin(0, 5);
  int64_t guessed = 0, last = 0;
  for (int i = 0; i < 90; ++i) {
    const TokenId wrong = (FakeExecutor::Expected(config_, Text(0), 0) + 1) % kVocab;
    Ask({{0, wrong}});
    if (Guesses(0).empty()) continue;
    ++guessed;
    last = i;
  }
  EXPECT_LT(guessed, 20);
  EXPECT_GT(last, 30) << "it was never retried";
}

// While the next token is in flight, only `waits` is set.
TEST_F(DraftModelTest, RunsNoStepWhenMostIsZero) {
  Make();
  Begin(0, 5);
  EXPECT_TRUE(Ask({{0, 1}}, 0)[0].waits);
  EXPECT_EQ(executor_->steps(), 0);
}

// No guess depends on the KV of a failed step.
TEST_F(DraftModelTest, FailedStepLeavesNoKv) {
  config_.step_error_rate = 0.3;
  Make();
  Begin(0, 9);
  int64_t guessed = 0;
  for (int i = 0; i < 20; ++i) {
    Ask({{0, static_cast<TokenId>(FakeExecutor::Expected(config_, Text(0), 0))}});
    const auto right = Right(0, kMost);
    for (size_t g = 0; g < Guesses(0).size(); ++g) ASSERT_EQ(Guesses(0)[g], right[g]) << "after " << i << " tokens";
    guessed += static_cast<int64_t>(Guesses(0).size());
  }
  EXPECT_GT(guessed, 10);
}

}  // namespace
}  // namespace tactus::core
