#include "core/draft/prompt_lookup.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace tactus::core {
namespace {

Request MakeRequest(std::vector<TokenId> prompt) {
  Request r;
  r.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  r.stop.max_tokens = 4096;
  return r;
}

// One sequence, with the calls of the loop.
class Asked {
 public:
  Asked(PromptLookup* lookup, SlotId slot, std::vector<TokenId> prompt)
      : lookup_(*lookup), slot_(slot), request_(MakeRequest(std::move(prompt))) {
    lookup_.Begin(slot_, request_, {});
  }
  ~Asked() { lookup_.End(slot_); }
  DraftTask Came(TokenId token, int32_t most = 16, double least_chance = 0) {
    output_.push_back(token);
    guesses_.clear();
    DraftTask task{.slot = slot_,
                   .prompt = *request_.prompt,
                   .output = output_,
                   .most = most,
                   .least_chance = least_chance,
                   .tokens = &guesses_};
    lookup_.Propose({&task, 1});
    return task;
  }
  const std::vector<TokenId>& guesses() const { return guesses_; }

 private:
  PromptLookup& lookup_;
  const SlotId slot_;
  const Request request_;
  std::vector<TokenId> output_, guesses_;
};

TEST(PromptLookup, GuessesCopiedPrompt) {
  std::vector<TokenId> prompt;
  for (TokenId t = 0; t < 50; ++t) prompt.push_back(1000 + t);
  PromptLookup lookup(4, 8, 4096);
  Asked s(&lookup, 2, prompt);
  for (TokenId t = 0; t < 10; ++t) s.Came(1000 + t);
  const DraftTask task = s.Came(1010);
  EXPECT_EQ(s.guesses(), (std::vector<TokenId>{1011, 1012, 1013, 1014, 1015, 1016, 1017, 1018}));
  EXPECT_TRUE(task.waits);
  EXPECT_EQ(task.kind, DraftKind::kNgram);
  EXPECT_GT(task.chance, kSureDraft / 2);
  EXPECT_LT(task.chance, kSureDraft) << "a guess is never sure";
}

TEST(PromptLookup, LearnsWithoutGuessingBelowLeastChance) {
  std::vector<TokenId> prompt;
  for (TokenId t = 0; t < 50; ++t) prompt.push_back(1000 + t);
  PromptLookup lookup(4, 8, 4096);
  Asked s(&lookup, 2, prompt);
  for (TokenId t = 0; t < 10; ++t) {
    EXPECT_FALSE(s.Came(1000 + t, 16, 1.01).waits);
    EXPECT_TRUE(s.guesses().empty());
  }
  EXPECT_EQ(s.Came(1010).tokens->size(), 8U);
}

// The chance is measured without verification, and `waits` is set as soon as it is high enough.
TEST(PromptLookup, LearnsAndWaitsWhenMostIsZero) {
  std::vector<TokenId> prompt;
  for (TokenId t = 0; t < 50; ++t) prompt.push_back(1000 + t);
  PromptLookup lookup(4, 8, 4096);
  Asked s(&lookup, 0, prompt);
  DraftTask task;
  for (TokenId t = 0; t < 30; ++t) task = s.Came(1000 + t, 0);
  EXPECT_TRUE(s.guesses().empty());
  EXPECT_TRUE(task.waits);
  EXPECT_GT(task.chance, kSureDraft * 8 / 10);
}

// Text that only seems to repeat itself: a pair of tokens recurs, each time with another continuation.
TEST(PromptLookup, StopsAfterWrongGuesses) {
  Rng rng(1);
  PromptLookup lookup(4, 8, 4096);
  Asked s(&lookup, 0, {1, 2});
  int64_t guessed_late = 0;
  for (int i = 0; i < 1000; ++i) {
    s.Came(1);
    s.Came(2);
    if (i > 100) guessed_late += !s.guesses().empty();
    s.Came(static_cast<TokenId>(rng.UniformInt(10, 100000)));
  }
  EXPECT_LT(guessed_late, 20);
}

// A task with guesses keeps them; its tokens still enter the index.
TEST(PromptLookup, KeepsGuessesOfOtherSources) {
  PromptLookup lookup(4, 8, 4096);
  const Request request = MakeRequest({1, 2, 3, 4, 1, 2});
  lookup.Begin(0, request, {});
  std::vector<TokenId> output = {3}, guesses = {9};
  DraftTask task{.slot = 0, .prompt = *request.prompt, .output = output, .most = 4, .tokens = &guesses};
  task.waits = true;
  task.chance = kSureDraft;
  task.kind = DraftKind::kForced;
  lookup.Propose({&task, 1});
  EXPECT_EQ(guesses, std::vector<TokenId>{9});
  EXPECT_EQ(task.kind, DraftKind::kForced);
  output.push_back(4);
  guesses.clear();
  DraftTask next{.slot = 0, .prompt = *request.prompt, .output = output, .most = 2, .tokens = &guesses};
  lookup.Propose({&next, 1});
  EXPECT_EQ(guesses, (std::vector<TokenId>{1, 2}));
  lookup.End(0);
}

// A reused slot has no state of its previous sequence.
TEST(PromptLookup, ReusedSlotStartsEmpty) {
  PromptLookup lookup(1, 8, 4096);
  {
    Asked first(&lookup, 0, {1, 2, 3, 1, 2});
    first.Came(3);
  }
  Asked second(&lookup, 0, {7, 8, 1});
  const DraftTask task = second.Came(2);
  EXPECT_FALSE(task.waits);
  EXPECT_TRUE(second.guesses().empty());
}

}  // namespace
}  // namespace tactus::core
