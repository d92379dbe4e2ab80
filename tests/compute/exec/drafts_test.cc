// Drafts and grammars at the executor. For right, wrong and partly right drafts, the tokens, logprobs and logits equal
// those of a run without drafts, bit for bit, at every temperature; tokens that a grammar forbids are never sampled,
// with or without drafts.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "compute/exec/tiny_model.h"
#include "support/listed_grammar.h"

namespace tactus::test {
namespace {

constexpr int32_t kOutput = 24;
constexpr TokenId kEnd = 1;

SamplingParams Sampled(uint64_t seed) {
  SamplingParams p;
  p.temperature = 1.1f;
  p.top_p = 0.95f;
  p.seed = seed;
  p.frequency_penalty = 0.4f;
  p.repetition_penalty = 1.1f;
  p.logprobs = 2;
  return p;
}

class Drafts : public ::testing::Test {
 protected:
  void Make(int32_t threads = 1) {
    model_ = LoadTiny("llama-gqa");
    compute::CpuExecutorOptions options = model_.Options();
    options.threads = threads;
    auto runner = compute::StepRunner::Create(model_.config, model_.weights, options);
    ASSERT_TRUE(runner.ok()) << runner.status().ToString();
    runner_ = std::move(*runner);
  }
  Request Ask(const SamplingParams& sampling) const {
    return MakeRequest({3, 17, 25, 4, 90, 61, 8}, sampling, kOutput + 8);
  }
  std::vector<TokenId> Plain(const Request& request, std::vector<std::vector<TokenLogprob>>* logprobs = nullptr) {
    StepDriver driver(*runner_, 64, 16);
    driver.Add(request);
    driver.Generate(0, kOutput);
    EXPECT_EQ(driver.at(0).status, ItemStatus::kOk);
    if (logprobs != nullptr) Collect(driver.at(0), logprobs);
    return driver.at(0).output();
  }
  static void Collect(const StepDriver::Sequence& s, std::vector<std::vector<TokenLogprob>>* logprobs) {
    for (const auto& step : s.logprobs) logprobs->insert(logprobs->end(), step.per_token.begin(), step.per_token.end());
  }

  TinyModel model_;
  std::unique_ptr<compute::StepRunner> runner_;
};

// Drafts of 0 to 6 tokens that become wrong at a random place, or nowhere.
TEST_F(Drafts, TokensAndLogprobsAreThoseOfARunWithoutDrafts) {
  for (const int32_t threads : {1, 2}) {
    Make(threads);
    for (const SamplingParams& sampling : {Greedy(), Sampled(5), Sampled(6)}) {
      const Request request = Ask(sampling);
      std::vector<std::vector<TokenLogprob>> expected_logprobs, logprobs;
      const std::vector<TokenId> expected = Plain(request, &expected_logprobs);
      Rng rng(static_cast<uint64_t>(threads) + sampling.seed);
      StepDriver driver(*runner_, 64, 16);
      driver.Add(request);
      int64_t accepted = 0, guessed = 0, steps = 0;
      while (static_cast<int32_t>(driver.at(0).output().size()) < kOutput) {
        ASSERT_LT(steps++, 100) << "the sequence does not advance";
        const size_t have = driver.at(0).output().size();
        std::vector<TokenId> drafts;
        if (have > 0) {  // no drafts with the prompt
          const auto count = static_cast<size_t>(rng.UniformInt(0, 6));
          for (size_t i = have; i < std::min(have + count, expected.size()); ++i) drafts.push_back(expected[i]);
          if (!drafts.empty() && rng.UniformInt(0, 2) > 0) {
            TokenId& wrong = drafts[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(drafts.size()) - 1))];
            wrong = (wrong + 1) % static_cast<TokenId>(model_.config.vocab_size);
          }
        }
        guessed += static_cast<int64_t>(drafts.size());
        const StepResult result = driver.Step({{0, driver.at(0).pending(), drafts}});
        ASSERT_TRUE(result.status.ok()) << result.status.ToString();
        accepted += result.items[0].num_tokens - 1;
        ASSERT_EQ(result.items[0].accepted, result.items[0].num_tokens + (have == 0 ? request.prompt->size() - 1 : 0));
      }
      std::vector<TokenId> output = driver.at(0).output();
      output.resize(kOutput);
      ASSERT_EQ(output, expected) << "temperature " << sampling.temperature;
      EXPECT_GT(accepted, 5);
      EXPECT_LT(accepted, guessed);
      Collect(driver.at(0), &logprobs);
      if (sampling.logprobs < 0) continue;
      for (size_t i = 0; i < kOutput; ++i) {
        ASSERT_EQ(logprobs[i].size(), expected_logprobs[i].size());
        for (size_t k = 0; k < logprobs[i].size(); ++k) {
          ASSERT_EQ(logprobs[i][k].token, expected_logprobs[i][k].token) << "token " << i;
          ASSERT_EQ(logprobs[i][k].logprob, expected_logprobs[i][k].logprob) << "token " << i;
        }
      }
    }
  }
}

TEST_F(Drafts, TheLargestNumberOfDraftsPerItemIsAccepted) {
  Make();
  const Request request = MakeRequest({3, 17, 25}, Greedy(), 100);
  StepDriver plain(*runner_, 64, 16);
  plain.Add(request);
  plain.Generate(0, compute::kMaxDraftTokens + 2);
  const std::vector<TokenId> expected = plain.at(0).output();
  StepDriver driver(*runner_, 64, 16);
  driver.Add(request);
  ASSERT_TRUE(driver.Step({{0, 3, {}}}).status.ok());
  const StepResult result = driver.Step(
      {{0, 1, std::vector<TokenId>(expected.begin() + 1, expected.begin() + 1 + compute::kMaxDraftTokens)}});
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_EQ(result.items[0].num_tokens, compute::kMaxDraftTokens + 1);
  EXPECT_EQ(driver.at(0).output(), expected);
}

// Rejected positions leave garbage in K and V, which must not be read and must not affect other items of the step.
TEST_F(Drafts, RejectedDraftsAffectNeitherOtherItemsNorLaterSteps) {
  Make(2);
  const Request one = Ask(Greedy()), other = MakeRequest({9, 8, 7, 6}, Sampled(3), kOutput + 8);
  const std::vector<TokenId> expected_one = Plain(one), expected_other = Plain(other);
  StepDriver driver(*runner_, 64, 16);
  driver.Add(one), driver.Add(other);
  driver.Step({{0, 7, {}}, {1, 4, {}}});
  for (int32_t i = 0; i < kOutput; ++i) {
    const StepResult result = driver.Step({{0, driver.at(0).pending(), {5, 5, 5, 5}}, {1, driver.at(1).pending(), {}}});
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  }
  for (const auto& [sequence, expected] : {std::pair{0, expected_one}, {1, expected_other}}) {
    std::vector<TokenId> output = driver.at(sequence).output();
    output.resize(kOutput);
    EXPECT_EQ(output, expected) << "sequence " << sequence;
  }
}

TEST_F(Drafts, AGrammarAllowsOnlyItsAnswers) {
  Make();
  const std::vector<std::vector<TokenId>> answers = {{40, 41, 42}, {40, 41, 50, 51}, {60}};
  Request request = Ask(Sampled(1));
  request.grammar = std::make_shared<ListedGrammar>(model_.config.vocab_size, kEnd, answers);
  std::vector<bool> seen(answers.size());
  for (uint64_t seed = 0; seed < 60; ++seed) {
    request.sampling.seed = seed;
    StepDriver driver(*runner_, 64, 16);
    driver.Add(request);
    driver.Generate(0, 6);
    ASSERT_EQ(driver.at(0).status, ItemStatus::kOk);
    std::vector<TokenId> output = driver.at(0).output();
    const auto end = std::find(output.begin(), output.end(), kEnd);
    ASSERT_NE(end, output.end()) << "seed " << seed;
    const auto answer = std::find(answers.begin(), answers.end(), std::vector<TokenId>(output.begin(), end));
    ASSERT_NE(answer, answers.end()) << "seed " << seed;
    seen[static_cast<size_t>(answer - answers.begin())] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 3) << "some answer was never sampled";
}

// After a preemption the grammar continues from the output so far; also with drafts, some of which it forbids.
TEST_F(Drafts, AGrammarSurvivesAPreemptionAndWrongDrafts) {
  Make();
  Request request = Ask(Greedy());
  request.grammar = std::make_shared<ListedGrammar>(model_.config.vocab_size, kEnd,
                                                    std::vector<std::vector<TokenId>>{{40, 41, 42, 43, 44, 45}});
  const std::vector<TokenId> expected = {40, 41, 42, 43, 44, 45, kEnd, kEnd};
  StepDriver driver(*runner_, 64, 16);
  driver.Add(request);
  driver.Step({{0, 7, {}}});
  driver.Step({{0, 1, {41, 42, 99}}});
  ASSERT_EQ(driver.at(0).output(), std::vector<TokenId>(expected.begin(), expected.begin() + 4));
  driver.Preempt(0);
  driver.Step({{0, driver.at(0).pending(), {}}});
  driver.Step({{0, 1, {45, kEnd, kEnd}}});
  EXPECT_EQ(driver.at(0).status, ItemStatus::kOk);
  std::vector<TokenId> output = driver.at(0).output();
  output.resize(expected.size());
  EXPECT_EQ(output, expected);
}

TEST_F(Drafts, AGrammarWithoutAllowedTokensEndsItsSequenceAlone) {
  Make();
  Request request = Ask(Greedy());
  request.grammar =
      std::make_shared<ListedGrammar>(model_.config.vocab_size, kEnd, std::vector<std::vector<TokenId>>{});
  const Request other = Ask(Greedy());
  StepDriver driver(*runner_, 64, 16);
  driver.Add(request), driver.Add(other);
  const StepResult result = driver.Step({{0, 7, {}}, {1, 7, {}}});
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.items[0].status, ItemStatus::kBadGrammar);
  EXPECT_EQ(result.items[1].status, ItemStatus::kOk);
  EXPECT_EQ(driver.at(1).output().size(), 1u);
}

}  // namespace
}  // namespace tactus::test
