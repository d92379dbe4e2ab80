#include "draft/forced_tokens.h"

#include <gtest/gtest.h>

#include "draft/draft_sources.h"
#include "support/listed_grammar.h"

namespace tactus::draft {
namespace {

using test::ListedGrammar;

constexpr TokenId kEnd = 0;

Request WithGrammar() {
  Request r;
  r.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1});
  r.grammar = std::make_shared<ListedGrammar>(
      64, kEnd, std::vector<std::vector<TokenId>>{{10, 11, 12, 20, 13}, {10, 11, 12, 30, 31, 32}});
  return r;
}

DraftTask Ask(DraftSource* source, const std::vector<TokenId>& output, std::vector<TokenId>* guesses,
              int32_t most = 16) {
  static const std::vector<TokenId> prompt = {1};
  guesses->clear();
  DraftTask task{.slot = 0, .prompt = prompt, .output = output, .most = most, .tokens = guesses};
  source->Propose({&task, 1});
  return task;
}

TEST(ForcedTokens, WhatHasNoChoiceIsSure) {
  ForcedTokens forced(1);
  forced.Begin(0, WithGrammar(), {});
  std::vector<TokenId> guesses;
  const DraftTask task = Ask(&forced, {10}, &guesses);
  EXPECT_EQ(guesses, (std::vector<TokenId>{11, 12}));
  EXPECT_TRUE(task.waits);
  EXPECT_EQ(task.kind, DraftKind::kForced);
  EXPECT_EQ(task.chance, kSureDraft);
  Ask(&forced, {10, 11, 12}, &guesses);
  EXPECT_TRUE(guesses.empty()) << "20 or 30 may follow";
  Ask(&forced, {10, 11, 12, 30}, &guesses, 1);
  EXPECT_EQ(guesses, std::vector<TokenId>{31}) << "no more than there is room for";
}

// A sequence that has run elsewhere, or has no grammar.
TEST(ForcedTokens, OutputFromElsewhereCounts) {
  ForcedTokens forced(1);
  std::vector<TokenId> guesses;
  const std::vector<TokenId> output = {10, 11, 12, 30};
  forced.Begin(0, WithGrammar(), output);
  Ask(&forced, output, &guesses);
  EXPECT_EQ(guesses, (std::vector<TokenId>{31, 32}));
  forced.End(0);
  Request plain = WithGrammar();
  plain.grammar = nullptr;
  forced.Begin(0, plain, {});
  EXPECT_FALSE(Ask(&forced, {10}, &guesses).waits);
  EXPECT_TRUE(guesses.empty());
}

// A text that the grammar does not know is not followed any further.
TEST(ForcedTokens, AnotherTextEndsIt) {
  ForcedTokens forced(1);
  forced.Begin(0, WithGrammar(), {});
  std::vector<TokenId> guesses;
  Ask(&forced, {10, 50}, &guesses);
  EXPECT_TRUE(guesses.empty());
  Ask(&forced, {10, 50, 11}, &guesses);
  EXPECT_TRUE(guesses.empty());
}

class Says final : public DraftSource {
 public:
  explicit Says(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}
  void Begin(SlotId, const Request&, std::span<const TokenId>) override {}
  void End(SlotId) override {}
  void Propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      if (task.waits) continue;
      *task.tokens = tokens_;
      task.waits = true;
      task.kind = DraftKind::kModel;
    }
  }

 private:
  const std::vector<TokenId> tokens_;
};

TEST(DraftSources, ForcedTokensGoFirstAndGuessesAreCutToTheGrammar) {
  DraftSources sources(1, std::make_unique<Says>(std::vector<TokenId>{30, 31, 40, 41}));
  sources.Begin(0, WithGrammar(), {});
  std::vector<TokenId> guesses;
  EXPECT_EQ(Ask(&sources, {10}, &guesses).kind, DraftKind::kForced);
  EXPECT_EQ(guesses, (std::vector<TokenId>{11, 12}));
  EXPECT_EQ(Ask(&sources, {10, 11, 12}, &guesses).kind, DraftKind::kModel);
  EXPECT_EQ(guesses, (std::vector<TokenId>{30, 31}));
  sources.End(0);
  Request plain = WithGrammar();
  plain.grammar = nullptr;
  sources.Begin(0, plain, {});
  Ask(&sources, {10, 11, 12}, &guesses);
  EXPECT_EQ(guesses.size(), 4u);
}

}  // namespace
}  // namespace tactus::draft
