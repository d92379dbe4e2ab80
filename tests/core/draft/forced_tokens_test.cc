#include "core/draft/forced_tokens.h"

#include <gtest/gtest.h>

#include "core/draft/draft_sources.h"
#include "support/listed_grammar.h"

namespace tactus::core {
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

// A grammar whose states check that it outlives them.
class Lender final : public TokenGrammar {
 public:
  explicit Lender(bool* alive) : alive_(alive) { *alive_ = true; }
  ~Lender() override { *alive_ = false; }
  std::unique_ptr<GrammarState> Start() const override { return std::make_unique<State>(alive_); }
  int64_t vocab_size() const override { return 64; }

 private:
  struct State final : GrammarState {
    explicit State(const bool* alive) : alive_(alive) {}
    ~State() override { EXPECT_TRUE(*alive_) << "the grammar was destroyed before its state"; }
    bool FillMask(std::span<uint32_t>) override { return true; }
    bool Accept(TokenId) override { return true; }
    int32_t CountValid(std::span<const TokenId> tokens) override { return static_cast<int32_t>(tokens.size()); }
    void Forced(int32_t, std::vector<TokenId>* tokens) override { tokens->clear(); }
    const bool* const alive_;
  };
  bool* const alive_;
};

TEST(ForcedTokens, StateIsDestroyedBeforeItsGrammar) {
  ForcedTokens forced(1);
  bool alive = false;
  Request request = WithGrammar();
  request.grammar = std::make_shared<Lender>(&alive);
  forced.Begin(0, request, {});
  request.grammar = nullptr;
  EXPECT_TRUE(alive);
  forced.End(0);
  EXPECT_FALSE(alive);
}

TEST(ForcedTokens, ForcedTokensAreSure) {
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
  EXPECT_EQ(guesses, std::vector<TokenId>{31}) << "at most `most` tokens";
}

// A sequence that was migrated in, and one without a grammar.
TEST(ForcedTokens, MigratedOutputAdvancesTheGrammar) {
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

// After a token that the grammar does not allow there are no forced tokens.
TEST(ForcedTokens, TextOutsideTheGrammarEndsForcing) {
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
}  // namespace tactus::core
