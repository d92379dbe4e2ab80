// Logprobs, grammars, and the least length before an end.
#include <algorithm>
#include <cmath>

#include "contract/bed.h"
#include "contract/checks.h"
#include "support/listed_grammar.h"

namespace tactus::contract {
namespace {

using Logprobs = std::vector<std::vector<TokenLogprob>>;

Logprobs PromptLogprobs(const StepDriver::Sequence& sequence) {
  Logprobs rows;
  for (const auto& step : sequence.prompt_logprobs)
    rows.insert(rows.end(), step.per_token.begin(), step.per_token.end());
  return rows;
}

// `entry`: the chosen token, then the best ones in order.
void ExpectSound(const std::vector<TokenLogprob>& entry, TokenId chosen, size_t best, const std::string& where) {
  ASSERT_EQ(entry.size(), 1 + best) << where;
  EXPECT_EQ(entry[0].token, chosen) << where << ": the first logprob is of another token";
  double sum = 0;
  for (size_t k = 1; k < entry.size(); ++k) {
    sum += std::exp(entry[k].logprob);
    EXPECT_LE(entry[0].logprob, entry[1].logprob) << where << ": the chosen token is better than the best";
    EXPECT_LE(entry[k].logprob, entry[std::max<size_t>(k - 1, 1)].logprob) << where << ": the best are out of order";
    if (entry[k].token == chosen) {
      EXPECT_EQ(entry[k].logprob, entry[0].logprob) << where;
    }
  }
  EXPECT_LE(entry[0].logprob, 0.0f) << where;
  EXPECT_LE(sum, 1.001) << where << ": probabilities add up to more than 1";
}

// Logprobs of sampled tokens equal those that the same tokens have as a prompt: both are of the raw logits.
void LogprobsAreThoseOfTheReturnedTokens(const Backend& backend) {
  for (const float temperature : {0.0f, 1.3f}) {
    SamplingParams p = Greedy();
    p.temperature = temperature;
    p.seed = 4;
    p.logprobs = 3;
    const Request request = MakeRequest(RandomTokens(backend, 12, 6), p);
    const Output output = Alone(backend, request);
    ASSERT_EQ(output.logprobs.size(), output.tokens.size()) << "a token has no logprobs";
    std::vector<TokenId> prompt = *request.prompt;
    prompt.insert(prompt.end(), output.tokens.begin(), output.tokens.end());
    Request whole = MakeRequest(prompt, p);
    whole.prompt_logprobs = true;
    Bed bed(backend);
    const int32_t s = bed.driver().Add(whole);
    bed.driver().Step({{s, 5, {}}}, true);
    bed.driver().Step({{s, bed.driver().at(s).pending(), {}}}, true);
    const Logprobs rows = PromptLogprobs(bed.driver().at(s));
    ASSERT_EQ(rows.size(), prompt.size() - 1) << "every row of a prompt but the last has logprobs";
    for (size_t r = 0; r < rows.size(); ++r)
      ExpectSound(rows[r], prompt[r + 1], 3, "prompt token " + std::to_string(r + 1));
    for (size_t i = 0; i < output.tokens.size(); ++i) {
      const std::string where = "output token " + std::to_string(i);
      ExpectSound(output.logprobs[i], output.tokens[i], 3, where);
      if (temperature == 0) {
        EXPECT_EQ(output.logprobs[i][1].token, output.tokens[i]) << where << ": greedy, but not the best";
      }
      EXPECT_EQ(output.logprobs[i][0].logprob, rows[request.prompt->size() + i - 1][0].logprob)
          << where << ": another logprob than as a prompt's token";
    }
  }
}

// Two prompts with logprobs beside one without, in one step.
void LogprobsOfSeveralItemsAreNotMixed(const Backend& backend) {
  std::vector<Request> requests;
  Bed bed(backend);
  std::vector<StepDriver::Take> takes;
  for (int32_t i = 0; i < 3; ++i) {
    SamplingParams p = Greedy();
    p.logprobs = i == 1 ? -1 : i;
    requests.push_back(MakeRequest(RandomTokens(backend, 6 + i, static_cast<uint64_t>(i)), p));
    requests.back().prompt_logprobs = i != 1;
    takes.push_back({bed.driver().Add(requests.back()), 6 + i, {}});
  }
  bed.driver().Step(takes, true);
  for (size_t i = 0; i < requests.size(); ++i) {
    const StepDriver::Sequence& got = bed.driver().at(static_cast<int32_t>(i));
    const std::string schedule = "beside others with logprobs, item " + std::to_string(i);
    Bed alone(backend);
    const int32_t a = alone.driver().Add(requests[i]);
    alone.driver().Step({{a, takes[i].count, {}}}, true);
    ExpectSame(OutputOf(alone.driver().at(a)), OutputOf(got), schedule);
    ExpectSame({{}, PromptLogprobs(alone.driver().at(a))}, {{}, PromptLogprobs(got)}, schedule + ", prompt");
    EXPECT_EQ(PromptLogprobs(got).size(), i == 1 ? 0 : 5 + i) << schedule;
    EXPECT_EQ(OutputOf(got).logprobs.size(), i == 1 ? 0u : 1u) << schedule;
  }
}

constexpr TokenId kEnd = 1;

Request Ruled(const Backend& backend, const std::vector<std::vector<TokenId>>& answers) {
  Request request = MakeRequest(RandomTokens(backend, 7, 8), Greedy());
  request.grammar = std::make_shared<test::ListedGrammar>(backend.vocab_size, kEnd, answers);
  return request;
}

void GrammarsAllowOnlyTheirAnswers(const Backend& backend) {
  const std::vector<std::vector<TokenId>> answers = {{40, 41, 42}, {40, 41, 50, 51}, {60}};
  Request request = Ruled(backend, answers);
  request.sampling.temperature = 1.1f;
  std::vector<bool> seen(answers.size());
  Bed bed(backend);
  const int32_t s = bed.driver().Add(request);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    request.sampling.seed = seed;
    bed.driver().Restart(s);
    bed.driver().at(s).request = std::make_shared<Request>(request);
    bed.driver().Generate(s, 6);
    ASSERT_EQ(bed.driver().at(s).status, ItemStatus::kOk);
    const std::vector<TokenId> output = bed.driver().at(s).output();
    const auto end = std::find(output.begin(), output.end(), kEnd);
    const auto answer = std::find(answers.begin(), answers.end(), std::vector<TokenId>(output.begin(), end));
    ASSERT_TRUE(end != output.end() && answer != answers.end())
        << "seed " << seed << ": the grammar forbids " << testing::PrintToString(output);
    seen[static_cast<size_t>(answer - answers.begin())] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 3) << "an answer that the grammar allows was never sampled";
}

// Drafts that the step's only item accepted; -1: it has no token.
int32_t AcceptedOf(const StepResult& result) {
  return result.status.ok() ? result.items[0].num_tokens - 1 : -1;
}

// After a preemption the grammar continues from the output so far; with drafts too, some of which it forbids.
void GrammarsSurviveAPreemption(const Backend& backend) {
  const std::vector<TokenId> answer = {40, 41, 42, 43, 44, 45};
  std::vector<TokenId> expected = answer;
  expected.resize(kOutput, kEnd);
  for (const bool drafts : {false, true}) {
    if (drafts && !backend.drafts) continue;
    Bed bed(backend);
    StepDriver& driver = bed.driver();
    const int32_t s = driver.Add(Ruled(backend, {answer}));
    driver.Step({{s, 7, {}}});
    if (drafts) {
      EXPECT_EQ(AcceptedOf(driver.Step({{s, 1, {41, 42, 50}}})), 2) << "the grammar allows two of the drafts";
    }
    driver.Generate(s, 4);
    ASSERT_EQ(driver.at(s).output(), std::vector<TokenId>(answer.begin(), answer.begin() + 4));
    driver.Preempt(s);
    driver.Step({{s, driver.at(s).pending(), {}}});
    if (drafts) {
      EXPECT_EQ(AcceptedOf(driver.Step({{s, 1, {45, kEnd, kEnd}}})), 3) << "the grammar allows all drafts";
    }
    driver.Generate(s, kOutput);
    EXPECT_EQ(driver.at(s).status, ItemStatus::kOk);
    EXPECT_EQ(OutputOf(driver.at(s)).tokens, expected)
        << "the grammar's state is not that of the output so far, " << (drafts ? "with drafts" : "without drafts");
  }
}

void GrammarsWithoutTokensEndTheirItemAlone(const Backend& backend) {
  const Request other = MakeRequest(RandomTokens(backend, 7, 9), Greedy());
  Bed bed(backend);
  const int32_t ruled = bed.driver().Add(Ruled(backend, {})), free = bed.driver().Add(other);
  const StepResult result = bed.driver().Step({{ruled, 7, {}}, {free, 7, {}}});
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_EQ(result.items[0].status, ItemStatus::kBadGrammar);
  EXPECT_EQ(result.items[0].num_tokens, 0);
  EXPECT_EQ(result.items[1].status, ItemStatus::kOk);
  bed.driver().Generate(free, kOutput);
  ExpectSame(Alone(backend, other), OutputOf(bed.driver().at(free)), "beside a grammar without tokens");
}

// Half of the vocabulary ends the answer, but not before its fifth token; also if it is preempted before.
void EndsWaitForTheLeastLength(const Backend& backend) {
  constexpr int32_t kLeast = 4;
  for (const bool preempted : {false, true}) {
    Request request = MakeRequest(RandomTokens(backend, 10, 3), Greedy());
    request.stop.min_tokens = kLeast;
    const Output unlimited = Alone(backend, MakeRequest(*request.prompt, Greedy()));
    for (TokenId t = 0; t < backend.vocab_size; ++t) {
      if (t % 2 == unlimited.tokens[0] % 2) request.stop.stop_token_ids.push_back(t);
    }
    Bed bed(backend);
    const int32_t s = bed.driver().Add(request);
    bed.driver().Generate(s, 2);
    if (preempted) bed.driver().Preempt(s);
    bed.driver().Generate(s, kLeast);
    const Output output = OutputOf(bed.driver().at(s));
    ASSERT_EQ(output.tokens.size(), static_cast<size_t>(kLeast));
    for (const TokenId t : output.tokens)
      EXPECT_NE(t % 2, unlimited.tokens[0] % 2) << "an end before its time, " << (preempted ? "preempted" : "alone");
  }
}

}  // namespace

std::span<const Check> SamplingChecks() {
  static constexpr Check kChecks[] = {
      {"LogprobsAreThoseOfTheReturnedTokens", LogprobsAreThoseOfTheReturnedTokens, &Backend::logprobs},
      {"LogprobsOfSeveralItemsAreNotMixed", LogprobsOfSeveralItemsAreNotMixed, &Backend::logprobs},
      {"GrammarsAllowOnlyTheirAnswers", GrammarsAllowOnlyTheirAnswers, &Backend::grammars},
      {"GrammarsSurviveAPreemption", GrammarsSurviveAPreemption, &Backend::grammars},
      {"GrammarsWithoutTokensEndTheirItemAlone", GrammarsWithoutTokensEndTheirItemAlone, &Backend::grammars},
      {"EndsWaitForTheLeastLength", EndsWaitForTheLeastLength},
  };
  return kChecks;
}

}  // namespace tactus::contract
