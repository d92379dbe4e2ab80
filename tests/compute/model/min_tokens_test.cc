// min_tokens in sampling: no end token before it.
#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"
#include "compute/model/sampler.h"
#include "support/listed_grammar.h"

namespace tactus::compute {
namespace {

std::vector<float> RandomLogits(int64_t vocab, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& l : logits) l = static_cast<float>(rng.Normal() * 3.0);
  return logits;
}

std::shared_ptr<Request> MakeRequest(const SamplingParams& p) {
  auto request = std::make_shared<Request>();
  request->prompt = std::make_shared<const std::vector<TokenId>>(1, 1);
  request->sampling = p;
  request->stop.max_tokens = 100;
  return request;
}

// The first N tokens are not ends, for any logits, bias and temperature; then the end.
TEST(MinTokens, NoEndIsSampledBeforeMinTokens) {
  constexpr int64_t kVocab = 300;
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams p;
    p.temperature = temperature;
    p.logit_bias = {{2, 100.0f}};
    const auto request = MakeRequest(p);
    request->stop.min_tokens = 4;
    request->stop.stop_token_ids = {7, 2};
    SequenceHistory history;
    history.Start(SamplingOf(*request, {}, std::vector<TokenId>{2, 290}), 0, kVocab);
    Sampler sampler(kVocab);
    for (int64_t position = 1; position <= 6; ++position) {
      std::vector<float> row = RandomLogits(kVocab, static_cast<uint64_t>(position));
      row[7] = row[290] = 40.0f;
      const SampledToken sampled = sampler.Sample(history, position, row, nullptr);
      ASSERT_EQ(sampled.status, ItemStatus::kOk);
      if (position <= 4)
        EXPECT_TRUE(sampled.token != 2 && sampled.token != 7 && sampled.token != 290) << position;
      else
        EXPECT_EQ(sampled.token, 2) << position;
      history.Append(sampled.token);
    }
    // A restarted sequence has already generated some of them.
    history.Start(SamplingOf(*request, std::vector<TokenId>{5, 5, 5}, std::vector<TokenId>{2}), 0, kVocab);
    for (const bool end : {false, true}) {
      std::vector<float> row = RandomLogits(kVocab, 9);
      const TokenId token = sampler.Sample(history, 1, row, nullptr).token;
      EXPECT_EQ(token == 2, end);
      history.Append(token);
    }
  }
}

TEST(MinTokens, LogprobsOfForbiddenEndsAreRaw) {
  SamplingParams p;
  p.temperature = 0;
  p.logprobs = 1;
  const auto request = MakeRequest(p);
  request->stop.min_tokens = 1;
  SequenceHistory history;
  history.Start(SamplingOf(*request, {}, std::vector<TokenId>{1}), 0, 3);
  std::vector<float> row = {0.0f, 5.0f, 1.0f};
  std::vector<TokenLogprob> logprobs;
  EXPECT_EQ(Sampler(3).Sample(history, 1, row, &logprobs).token, 2);
  ASSERT_EQ(logprobs.size(), 2u);
  EXPECT_EQ(logprobs[1].token, 1) << "the likeliest of the raw logits";
  EXPECT_NEAR(logprobs[0].logprob, logprobs[1].logprob - 4.0f, 1e-5);
}

TEST(MinTokens, NonFiniteLogitsAreFoundDespiteForbiddenEnds) {
  const auto request = MakeRequest(SamplingParams());
  request->stop.min_tokens = 1;
  SequenceHistory history;
  history.Start(SamplingOf(*request, {}, std::vector<TokenId>{1}), 0, 3);
  std::vector<float> row = {0.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f};
  EXPECT_EQ(Sampler(3).Sample(history, 1, row, nullptr).status, ItemStatus::kBadLogits);
}

// The grammar takes precedence over min_tokens: nothing can follow its end.
TEST(MinTokens, AnEndIsSampledEarlyIfTheGrammarAllowsNothingElse) {
  const auto request = MakeRequest(SamplingParams{.temperature = 0});
  request->grammar =
      std::make_shared<test::ListedGrammar>(8, 7, std::vector<std::vector<TokenId>>{{1, 2}, {1, 2, 3}, {4}});
  request->stop.min_tokens = 6;
  SequenceHistory history;
  history.Start(SamplingOf(*request, {}, std::vector<TokenId>{7}), 0, 8);
  std::vector<TokenId> tokens;
  while (tokens.size() < 4) {
    std::vector<float> row(8, 0.0f);
    row[1] = 1.0f;
    row[7] = 50.0f;
    const SampledToken sampled = Sampler(8).Sample(history, 1, row, nullptr);
    ASSERT_EQ(sampled.status, ItemStatus::kOk);
    tokens.push_back(sampled.token);
    history.Append(sampled.token);
  }
  EXPECT_EQ(tokens, (std::vector<TokenId>{1, 2, 3, 7})) << "the longer answer, although the end was likelier before it";
}

}  // namespace
}  // namespace tactus::compute
