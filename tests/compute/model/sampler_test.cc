// Sampling against a naive reference (a full sort, sums in double), one step at a time and all together; the
// distribution of sampled tokens; and independence of other inputs.
#include "compute/model/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "support/listed_grammar.h"

namespace tactus::sampler_test {
namespace {

std::vector<float> RandomLogits(int64_t vocab, uint64_t seed, double scale = 3.0) {
  Rng rng(seed);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& l : logits) l = static_cast<float>(rng.Normal() * scale);
  return logits;
}

std::shared_ptr<Request> MakeRequest(const SamplingParams& p, std::vector<TokenId> prompt = {1}) {
  auto request = std::make_shared<Request>();
  request->prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  request->sampling = p;
  request->stop.max_tokens = 100;
  return request;
}

// Probability of every token, by the definition in docs/reference/api.md. Logits already have bias and penalties.
std::vector<double> NaiveDistribution(const std::vector<float>& logits, const SamplingParams& p) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weight(logits.size());
  for (const size_t i : order) weight[i] = std::exp((double{logits[i]} - logits[order[0]]) / p.temperature);
  size_t kept = 0;
  while (kept < order.size() && weight[order[kept]] >= p.min_p) ++kept;
  if (p.top_k > 0) kept = std::min(kept, static_cast<size_t>(p.top_k));
  double total = 0.0;
  for (size_t i = 0; i < kept; ++i) total += weight[order[i]];
  double sum = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    sum += weight[order[i]];
    if (sum >= p.top_p * total) kept = i + 1;
  }
  std::vector<double> result(logits.size(), 0.0);
  sum = 0.0;
  for (size_t i = 0; i < kept; ++i) sum += weight[order[i]];
  for (size_t i = 0; i < kept; ++i) result[order[i]] = weight[order[i]] / sum;
  return result;
}

void ExpectDistribution(const std::vector<float>& logits, const SamplingParams& p) {
  compute::Sampler sampler(static_cast<int64_t>(logits.size()));
  ASSERT_TRUE(sampler.Scan(logits));
  sampler.Shape(p);
  const std::vector<double> expected = NaiveDistribution(logits, p);
  double sum = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double ours = sampler.Probability(static_cast<TokenId>(i));
    sum += ours;
    // Below 2^-44 of the best a weight is 0; excluded tokens must have exactly 0.
    if (expected[i] > 1e-12) {
      ASSERT_GT(ours, 0.0) << "token " << i;
    }
    if (expected[i] == 0.0) {
      ASSERT_EQ(ours, 0.0) << "token " << i;
    }
    ASSERT_NEAR(ours, expected[i], 1e-6 * expected[i] + 1e-11) << "token " << i;
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
}

SamplingParams Params(float temperature, float min_p, int32_t top_k, float top_p) {
  SamplingParams p;
  p.temperature = temperature;
  p.min_p = min_p;
  p.top_k = top_k;
  p.top_p = top_p;
  return p;
}

TEST(Sampler, EachStepMatchesTheNaiveReference) {
  // 1000: not a whole number of blocks. 70: fewer blocks than most k. 1: one token.
  for (const int64_t vocab : {1, 63, 64, 70, 1000, 5000}) {
    const std::vector<float> logits = RandomLogits(vocab, static_cast<uint64_t>(vocab));
    for (const SamplingParams& p :
         {Params(1, 0, 0, 1), Params(0.3f, 0, 0, 1), Params(3, 0, 0, 1), Params(1, 0.05f, 0, 1), Params(1, 1, 0, 1),
          Params(1, 0, 1, 1), Params(1, 0, 5, 1), Params(1, 0, 60, 1), Params(1, 0, 999, 1), Params(1, 0, 100000, 1),
          Params(1, 0, 0, 0.5f), Params(1, 0, 0, 0.95f), Params(5, 0, 0, 0.97f), Params(1, 0, 0, 1e-6f),
          Params(0.8f, 0.02f, 40, 0.9f), Params(2, 0.001f, 300, 0.99f)}) {
      SCOPED_TRACE(testing::Message() << "vocab " << vocab << " T " << p.temperature << " min_p " << p.min_p
                                      << " top_k " << p.top_k << " top_p " << p.top_p);
      ExpectDistribution(logits, p);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Sampler, RandomCombinationsMatchTheNaiveReference) {
  Rng rng(99);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t vocab = rng.UniformInt(1, 700);
    const std::vector<float> logits = RandomLogits(vocab, static_cast<uint64_t>(trial), 0.2 + 4 * rng.Uniform());
    const SamplingParams p =
        Params(static_cast<float>(0.2 + 2 * rng.Uniform()), static_cast<float>(rng.Uniform() * 0.1),
               static_cast<int32_t>(rng.UniformInt(0, 2 * vocab)), static_cast<float>(0.05 + 0.95 * rng.Uniform()));
    SCOPED_TRACE(trial);
    ExpectDistribution(logits, p);
    if (HasFatalFailure()) return;
  }
}

TEST(Sampler, TiesGoToTheLowestId) {
  std::vector<float> logits(300, -1.0f);
  for (const size_t i : {200u, 130u, 7u, 250u}) logits[i] = 2.0f;
  compute::Sampler sampler(300);
  ASSERT_TRUE(sampler.Scan(logits));
  EXPECT_EQ(sampler.Argmax(), 7);
  sampler.Shape(Params(1, 0, 2, 1));
  EXPECT_DOUBLE_EQ(sampler.Probability(7), 0.5);
  EXPECT_DOUBLE_EQ(sampler.Probability(130), 0.5);
  EXPECT_EQ(sampler.Probability(200), 0.0);
  sampler.Shape(Params(1e-3f, 0, 0, 0.6f));  // four of weight 1: three reach 0.6
  EXPECT_GT(sampler.Probability(200), 0.0);
  EXPECT_EQ(sampler.Probability(250), 0.0);
  std::vector<float> equal(1000, 0.25f);
  ASSERT_TRUE(compute::Sampler(1000).Scan(equal));
  ExpectDistribution(equal, Params(1, 0, 10, 1));
  ExpectDistribution(equal, Params(1, 0, 700, 0.5f));
}

TEST(Sampler, HandlesExtremeTemperaturesAndLogits) {
  const std::vector<float> logits = {1.0f, 3.0e38f, -3.0e38f, 3.0e38f, 0.0f};
  compute::Sampler sampler(5);
  ASSERT_TRUE(sampler.Scan(logits));
  for (const float t : {1e-30f, 1e-40f, 1.0f, 100.0f}) {
    sampler.Shape(Params(t, 0, 0, 1));
    EXPECT_DOUBLE_EQ(sampler.Probability(1), 0.5) << t;
    EXPECT_DOUBLE_EQ(sampler.Probability(3), 0.5) << t;
  }
}

TEST(Sampler, NonFiniteLogitsAreFound) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0u, 63u, 64u, 127u, 128u, 129u}) {
      for (const float temperature : {0.0f, 1.0f}) {
        for (const int32_t logprobs : {-1, 2}) {
          std::vector<float> logits(130, 0.5f);
          logits[at] = bad;
          compute::SequenceHistory history;
          SamplingParams p = Params(temperature, 0, 0, 1);
          p.logprobs = logprobs;
          history.Start(SamplingOf(*MakeRequest(p), {}), 0, 130);
          std::vector<TokenLogprob> out;
          EXPECT_EQ(compute::Sampler(130).Sample(history, 1, logits, &out).status, ItemStatus::kBadLogits)
              << bad << " at " << at;
        }
      }
    }
  }
}

// Bias and penalties on a history that grows token by token, against the formulas applied to plain counts.
TEST(SequenceHistory, PenaltiesMatchPlainCounts) {
  constexpr int64_t kVocab = 200;
  Rng rng(5);
  SamplingParams p;
  p.repetition_penalty = 1.3f;
  p.frequency_penalty = 0.4f;
  p.presence_penalty = 0.7f;
  p.logit_bias = {{3, 5.0f}, {10, -100.0f}, {10000, 1.0f}};
  std::vector<TokenId> prompt = {3, 4, 4, 199, 50};
  std::vector<TokenId> output = {4, 60};
  compute::SequenceHistory history;
  history.Start(SamplingOf(*MakeRequest(p, prompt), output), 0, kVocab);
  for (int step = 0; step < 150; ++step) {
    const std::vector<float> raw = RandomLogits(kVocab, static_cast<uint64_t>(step));
    std::vector<float> expected = raw, ours = raw;
    expected[3] += 5.0f;
    expected[10] += -100.0f;
    for (TokenId t = 0; t < kVocab; ++t) {
      float& l = expected[static_cast<size_t>(t)];
      const auto count = std::count(output.begin(), output.end(), t);
      if (count > 0 || std::count(prompt.begin(), prompt.end(), t) > 0) l = l > 0 ? l / 1.3f : l * 1.3f;
      l -= 0.4f * static_cast<float>(count);
      if (count > 0) l -= 0.7f;
    }
    std::vector<std::pair<TokenId, float>> before;
    history.Adjust(ours, &before);
    ASSERT_EQ(ours, expected) << step;
    for (const auto& [token, value] : before) {
      const bool first = std::find_if(before.begin(), before.end(), [t = token](const auto& b) {
                           return b.first == t;
                         })->second == value;
      if (first) {
        EXPECT_EQ(value, raw[static_cast<size_t>(token)]);
      }
    }
    output.push_back(static_cast<TokenId>(rng.UniformInt(0, kVocab - 1)));
    history.Append(output.back());
    if (step == 70) history.Start(SamplingOf(*MakeRequest(p, prompt), output), 0, kVocab);  // a preemption
  }
}

// For any bias and temperature, only allowed tokens are sampled, in the same ratios as without the grammar.
TEST(Sampler, AGrammarKeepsTheRatiosOfAllowedTokens) {
  constexpr int64_t kVocab = 100;
  const std::vector<TokenId> allowed = {3, 31, 32, 64, 99};
  std::vector<std::vector<TokenId>> answers;
  for (const TokenId t : allowed) answers.push_back({t});
  SamplingParams p = Params(1.0f, 0, 0, 1);
  p.logit_bias = {{3, -100.0f}, {50, 100.0f}};
  auto request = MakeRequest(p);
  request->grammar = std::make_shared<test::ListedGrammar>(kVocab, 0, answers);
  compute::SequenceHistory history;
  history.Start(SamplingOf(*request, {}), 0, kVocab);
  const std::vector<float> logits = RandomLogits(kVocab, 4);
  std::vector<float> row = logits;
  history.Adjust(row, nullptr);
  std::vector<uint32_t> mask((kVocab + 31) / 32);
  ASSERT_EQ(history.Restrict(row, mask), ItemStatus::kOk);
  compute::Sampler sampler(kVocab);
  ASSERT_TRUE(sampler.Scan(row));
  sampler.Shape(p);
  double total = 0;
  for (const TokenId t : allowed) total += t == 3 ? 0 : std::exp(double{logits[static_cast<size_t>(t)]});
  for (TokenId t = 0; t < kVocab; ++t) {
    const bool in = t != 3 && std::find(allowed.begin(), allowed.end(), t) != allowed.end();
    const double share = in ? std::exp(double{logits[static_cast<size_t>(t)]}) / total : 0;
    ASSERT_NEAR(sampler.Probability(t), share, 1e-6) << "token " << t;
  }
  // Also with a single allowed answer of low probability, and greedy.
  request->grammar = std::make_shared<test::ListedGrammar>(kVocab, 0, std::vector<std::vector<TokenId>>{{3}});
  request->sampling.temperature = 0;
  request->sampling.top_k = 5;
  history.Start(SamplingOf(*request, {}), 0, kVocab);
  row.assign(kVocab, 0.0f);
  row[3] = -3e38f;
  EXPECT_EQ(sampler.Sample(history, 0, row, nullptr).token, 3);
}

TEST(SequenceHistory, AdjustWithoutPenaltiesChangesNothing) {
  compute::SequenceHistory history;
  history.Start(SamplingOf(*MakeRequest(SamplingParams{}, {1, 2, 3}), {}), 0, 50);
  history.Append(7);
  std::vector<float> logits = RandomLogits(50, 1);
  const std::vector<float> raw = logits;
  history.Adjust(logits, nullptr);
  EXPECT_EQ(logits, raw);
}

// Chi-square of sampled tokens against exact probabilities; 120 000 draws through all of Sample.
TEST(Sampler, DrawsFollowTheDistribution) {
  constexpr int64_t kVocab = 300;
  const std::vector<float> logits = RandomLogits(kVocab, 21, 1.5);
  for (const SamplingParams& base : {Params(1, 0, 0, 1), Params(1.4f, 0, 0, 0.9f), Params(0.7f, 0, 20, 1)}) {
    SamplingParams p = base;
    p.seed = 1234;
    const std::vector<double> expected = NaiveDistribution(logits, p);
    compute::SequenceHistory history;
    history.Start(SamplingOf(*MakeRequest(p), {}), 0, kVocab);
    compute::Sampler sampler(kVocab);
    constexpr int kDraws = 120000;
    std::vector<int> counts(kVocab, 0);
    for (int i = 0; i < kDraws; ++i) {
      std::vector<float> row = logits;
      const compute::SampledToken s = sampler.Sample(history, i, row, nullptr);
      ASSERT_EQ(s.status, ItemStatus::kOk);
      ++counts[static_cast<size_t>(s.token)];
    }
    double chi2 = 0.0, rest_expected = 0.0, rest_count = 0.0;
    int cells = 0;
    for (size_t t = 0; t < static_cast<size_t>(kVocab); ++t) {
      const double e = expected[t] * kDraws;
      if (e == 0.0) {
        EXPECT_EQ(counts[t], 0) << t;
      }
      if (e < 5.0) {
        rest_expected += e, rest_count += counts[t];
        continue;
      }
      chi2 += (counts[t] - e) * (counts[t] - e) / e;
      ++cells;
    }
    if (rest_expected >= 5.0)
      chi2 += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected, ++cells;
    // Mean cells - 1, deviation sqrt(2 (cells - 1)); the seed fixes the draws, so this cannot flake.
    EXPECT_LT(chi2, (cells - 1) + 4 * std::sqrt(2.0 * (cells - 1)));
    EXPECT_GT(chi2, (cells - 1) - 4 * std::sqrt(2.0 * (cells - 1)));
  }
}

TEST(Sampler, OneTokenIsAFunctionOfSeedChoiceAndPosition) {
  constexpr int64_t kVocab = 1000;
  const std::vector<float> logits = RandomLogits(kVocab, 3);
  auto draw = [&](uint64_t seed, int32_t choice, int64_t position) {
    SamplingParams p;
    p.seed = seed;
    compute::SequenceHistory history;
    history.Start(SamplingOf(*MakeRequest(p), {}), choice, kVocab);
    std::vector<float> row = logits;
    compute::Sampler sampler(kVocab);
    return sampler.Sample(history, position, row, nullptr).token;
  };
  int differs_by_seed = 0, differs_by_choice = 0, differs_by_position = 0;
  for (int64_t position = 0; position < 20; ++position) {
    const TokenId t = draw(1, 0, position);
    EXPECT_EQ(t, draw(1, 0, position));
    differs_by_seed += t != draw(2, 0, position);
    differs_by_choice += t != draw(1, 1, position);
    differs_by_position += t != draw(1, 0, position + 100);
  }
  EXPECT_GT(differs_by_seed, 10);
  EXPECT_GT(differs_by_choice, 10);
  EXPECT_GT(differs_by_position, 10);
}

TEST(Sampler, GreedyIsTheArgmaxAfterBiasAndPenalties) {
  std::vector<float> logits = RandomLogits(500, 8);
  const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  SamplingParams p = Params(0, 0, 0, 1);
  compute::SequenceHistory history;
  history.Start(SamplingOf(*MakeRequest(p), {}), 0, 500);
  std::vector<float> row = logits;
  EXPECT_EQ(compute::Sampler(500).Sample(history, 1, row, nullptr).token, best);
  p.presence_penalty = 2.0f;
  p.frequency_penalty = 2.0f;
  history.Start(SamplingOf(*MakeRequest(p), std::vector<TokenId>(10, best)), 0, 500);
  row = logits;
  EXPECT_NE(compute::Sampler(500).Sample(history, 1, row, nullptr).token, best);
  p.logit_bias = {{123, 100.0f}};
  history.Start(SamplingOf(*MakeRequest(p), {}), 0, 500);
  row = logits;
  EXPECT_EQ(compute::Sampler(500).Sample(history, 1, row, nullptr).token, 123);
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  const std::vector<float> logits = RandomLogits(900, 17);
  double sum = 0.0;
  for (const float l : logits) sum += std::exp(double{l});
  SamplingParams p = Params(2, 0, 0, 1);
  p.logprobs = 5;
  p.repetition_penalty = 2.0f;
  p.logit_bias = {{0, 200.0f}};
  compute::SequenceHistory history;
  history.Start(SamplingOf(*MakeRequest(p, {0, 1, 2}), {}), 0, 900);
  std::vector<float> row = logits;
  std::vector<TokenLogprob> out;
  const compute::SampledToken s = compute::Sampler(900).Sample(history, 1, row, &out);
  EXPECT_EQ(s.token, 0);
  ASSERT_EQ(out.size(), 6u);
  std::vector<TokenId> order(900);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  EXPECT_EQ(out[0].token, 0);
  for (size_t k = 0; k < 6; ++k) {
    if (k > 0) {
      EXPECT_EQ(out[k].token, order[k - 1]);
    }
    EXPECT_NEAR(out[k].logprob, logits[static_cast<size_t>(out[k].token)] - std::log(sum), 1e-5);
  }
}

// Every parameter at the ends of its range, over rows that are finite but extreme, with every token in the history:
// nothing overflows, a token is sampled, and greedy selects the best after Adjust.
TEST(Sampler, ValidParametersNeverMakeNonFiniteLogits) {
  constexpr float kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
  Rng rng(77);
  const auto pick = [&rng](std::initializer_list<float> values) {
    return *(values.begin() + rng.UniformInt(0, static_cast<int64_t>(values.size()) - 1));
  };
  for (int trial = 0; trial < 4000; ++trial) {
    const auto vocab = static_cast<int64_t>(pick({1, 2, 63, 64, 65, 200}));
    const float scale = pick({0.0f, kTiny, 1e-6f, 1.0f, 50.0f, 1e30f, kMax});
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (float& l : logits) l = pick({-1.0f, 0.0f, 0.5f, 1.0f}) * scale;
    SamplingParams p;
    p.temperature = pick({0.0f, kTiny, 1e-30f, 0.01f, 1.0f, 2.0f});
    p.top_p = pick({std::numeric_limits<float>::min(), 1e-6f, 0.5f, 1.0f});
    p.top_k = static_cast<int32_t>(pick({0, 1, 5, 64, 1e9f}));
    p.min_p = pick({0.0f, kTiny, 0.1f, 1.0f});
    p.repetition_penalty =
        pick({static_cast<float>(kMinRepetitionPenalty), 1.0f, static_cast<float>(kMaxRepetitionPenalty)});
    p.presence_penalty = pick({-2.0f, 0.0f, 2.0f});
    p.frequency_penalty = pick({-2.0f, 0.0f, 2.0f});
    p.logprobs = static_cast<int32_t>(pick({-1, 0, 20}));
    p.seed = static_cast<uint64_t>(trial);
    for (TokenId t = 0; t < vocab; t += 3) p.logit_bias.emplace_back(t, pick({-100.0f, 100.0f}));
    std::vector<TokenId> all(static_cast<size_t>(vocab)), output;
    std::iota(all.begin(), all.end(), 0);
    for (TokenId t = 0; t < vocab; t += 2) output.insert(output.end(), 20, t);
    compute::SequenceHistory history;
    history.Start(SamplingOf(*MakeRequest(p, all), output), 0, vocab);
    std::vector<float> row = logits;
    std::vector<TokenLogprob> logprobs;
    const compute::SampledToken s = compute::Sampler(vocab).Sample(history, trial, row, &logprobs);
    SCOPED_TRACE(testing::Message() << "trial " << trial << ": vocab " << vocab << " scale " << scale << " T "
                                    << p.temperature << " top_p " << p.top_p << " top_k " << p.top_k << " min_p "
                                    << p.min_p << " repetition " << p.repetition_penalty);
    ASSERT_EQ(s.status, ItemStatus::kOk);
    ASSERT_TRUE(s.token >= 0 && s.token < vocab) << s.token;
    for (const float l : row) ASSERT_TRUE(std::isfinite(l)) << l;
    if (p.temperature == 0.0f || p.top_k == 1) {
      ASSERT_EQ(s.token, std::max_element(row.begin(), row.end()) - row.begin());
    }
    const size_t rows = p.logprobs < 0 ? 0 : 1 + static_cast<size_t>(std::min<int64_t>(p.logprobs, vocab));
    ASSERT_EQ(logprobs.size(), rows);
    for (const TokenLogprob& l : logprobs) ASSERT_FALSE(std::isnan(l.logprob));
  }
}

// A non-finite logit is found even where a penalty would have changed it.
TEST(Sampler, ANonFiniteLogitOfASeenTokenIsFound) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(10, 0.5f);
    logits[3] = bad;
    SamplingParams p = Params(1, 0, 0, 1);
    p.repetition_penalty = 2.0f;
    compute::SequenceHistory history;
    history.Start(SamplingOf(*MakeRequest(p, {3}), {}), 0, 10);
    EXPECT_EQ(compute::Sampler(10).Sample(history, 1, logits, nullptr).status, ItemStatus::kBadLogits) << bad;
  }
}

TEST(Sampler, DrawInvertsTheDistributionInIdOrder) {
  std::vector<float> logits(200, -50.0f);
  logits[5] = logits[70] = logits[199] = 1.0f;
  logits[130] = 1.0f + std::log(2.0f);  // as much as two of the others
  compute::Sampler sampler(200);
  ASSERT_TRUE(sampler.Scan(logits));
  sampler.Shape(Params(1, 0, 0, 1));
  EXPECT_EQ(sampler.Draw(0.0), 5);
  EXPECT_EQ(sampler.Draw(0.199), 5);
  EXPECT_EQ(sampler.Draw(0.201), 70);
  EXPECT_EQ(sampler.Draw(0.399), 70);
  EXPECT_EQ(sampler.Draw(0.401), 130);
  EXPECT_EQ(sampler.Draw(0.799), 130);
  EXPECT_EQ(sampler.Draw(0.801), 199);
  EXPECT_EQ(sampler.Draw(std::nextafter(1.0, 0.0)), 199);
  sampler.Shape(Params(1, 0, 2, 1));  // 130 and the lowest of the equal ones
  EXPECT_EQ(sampler.Draw(0.0), 5);
  EXPECT_EQ(sampler.Draw(0.332), 5);
  EXPECT_EQ(sampler.Draw(0.334), 130);
  EXPECT_EQ(sampler.Draw(std::nextafter(1.0, 0.0)), 130);
  EXPECT_EQ(sampler.Probability(70), 0.0);
}

TEST(Sampler, WeightsEndAt44Bits) {
  std::vector<float> logits = {0.0f, -30.4f, -30.6f, -87.5f};
  compute::Sampler sampler(4);
  ASSERT_TRUE(sampler.Scan(logits));
  sampler.Shape(Params(1, 0, 0, 1));
  EXPECT_GT(sampler.Probability(1), 0.0);
  EXPECT_EQ(sampler.Probability(2), 0.0);
  EXPECT_EQ(sampler.Probability(3), 0.0);
}

TEST(Sampler, MinPKeepsTokensEqualToTheBound) {
  const std::vector<float> logits = {2.0f, 2.0f, 1.9f};
  compute::Sampler sampler(3);
  ASSERT_TRUE(sampler.Scan(logits));
  sampler.Shape(Params(1, 1, 0, 1));
  EXPECT_DOUBLE_EQ(sampler.Probability(0), 0.5);
  EXPECT_DOUBLE_EQ(sampler.Probability(1), 0.5);
  EXPECT_EQ(sampler.Probability(2), 0.0);
  sampler.Shape(Params(1, 0, 0, 1));  // each call of Shape starts again
  EXPECT_GT(sampler.Probability(2), 0.0);
}

TEST(Sampler, TopPKeepsTheShortestPrefixThatReachesIt) {
  const std::vector<float> logits(4, 1.0f);  // a quarter each
  compute::Sampler sampler(4);
  ASSERT_TRUE(sampler.Scan(logits));
  const auto kept = [&](float top_p) {
    sampler.Shape(Params(1, 0, 0, top_p));
    int count = 0;
    for (TokenId t = 0; t < 4; ++t) count += sampler.Probability(t) > 0.0;
    return count;
  };
  EXPECT_EQ(kept(1e-30f), 1);
  EXPECT_EQ(kept(0.25f), 1);
  EXPECT_EQ(kept(0.2501f), 2);
  EXPECT_EQ(kept(0.5f), 2);
  EXPECT_EQ(kept(0.7501f), 4);
  EXPECT_EQ(kept(1.0f), 4);
}

TEST(Sampler, LogprobsReturnNoneOneOrAllTokens) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f};
  const double sum = std::log(1.0 + std::exp(2.0) + std::exp(1.0));
  compute::Sampler sampler(3);
  std::vector<TokenLogprob> out(7);
  ASSERT_TRUE(sampler.Logprobs(logits, 2, 0, &out));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].token, 2);
  EXPECT_NEAR(out[0].logprob, 1.0 - sum, 1e-6);
  ASSERT_TRUE(sampler.Logprobs(logits, 0, 1, &out));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].token, 1);
  ASSERT_TRUE(sampler.Logprobs(logits, 0, 20, &out));  // more than exist
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[2].token, 2);
  EXPECT_EQ(out[3].token, 0);
  EXPECT_NEAR(out[3].logprob, -sum, 1e-6);
}

TEST(Sampler, DefaultsAreGreedyWithoutLogprobs) {
  std::vector<float> logits = {0.0f, 2.0f, 1.0f};
  compute::SequenceHistory history;
  history.Start({}, 3, 3);
  EXPECT_EQ(history.choice(), 3);
  std::vector<TokenLogprob> out(2);
  EXPECT_EQ(compute::Sampler(3).Sample(history, 1, logits, &out).token, 1);
  EXPECT_EQ(out.size(), 2u);
}

// Each penalty alone: its count, and the tokens that it applies to.
TEST(SequenceHistory, EachPenaltyMatchesItsFormula) {
  const auto adjusted = [](SamplingParams p, float logit) {
    compute::SequenceHistory history;
    history.Start(SamplingOf(*MakeRequest(p, {0, 1}), std::vector<TokenId>{1, 2, 2}), 0, 4);
    std::vector<float> row(4, logit);
    history.Adjust(row, nullptr);
    return row;
  };
  SamplingParams p;
  p.repetition_penalty = 2.0f;  // prompt and output
  EXPECT_EQ(adjusted(p, 3.0f), (std::vector<float>{1.5f, 1.5f, 1.5f, 3.0f}));
  EXPECT_EQ(adjusted(p, -3.0f), (std::vector<float>{-6.0f, -6.0f, -6.0f, -3.0f}));
  EXPECT_EQ(adjusted(p, 0.0f), (std::vector<float>(4, 0.0f)));
  p = SamplingParams();
  p.presence_penalty = 0.5f;  // output alone, once
  EXPECT_EQ(adjusted(p, 3.0f), (std::vector<float>{3.0f, 2.5f, 2.5f, 3.0f}));
  p = SamplingParams();
  p.frequency_penalty = 0.5f;  // output alone, by count
  EXPECT_EQ(adjusted(p, 3.0f), (std::vector<float>{3.0f, 2.5f, 2.0f, 3.0f}));
  p.repetition_penalty = 2.0f;  // the repetition penalty applies first
  EXPECT_EQ(adjusted(p, 3.0f), (std::vector<float>{1.5f, 1.0f, 0.5f, 3.0f}));
  p = SamplingParams();
  p.logit_bias = {{0, 1.0f}, {4, 1.0f}, {-1, 1.0f}};  // beyond the row: no effect
  EXPECT_EQ(adjusted(p, 3.0f), (std::vector<float>{4.0f, 3.0f, 3.0f, 3.0f}));
}

// More tokens than the request's max_tokens: the table grows without losing any.
TEST(SequenceHistory, GrowsBeyondMaxTokens) {
  SamplingParams p;
  p.frequency_penalty = 1.0f;
  auto request = MakeRequest(p, {0});
  request->stop.max_tokens = 1;
  compute::SequenceHistory history;
  history.Start(SamplingOf(*request, {}), 0, 1000);
  for (int round = 0; round < 3; ++round) {
    for (TokenId t = 0; t < 1000; ++t) history.Append(t);
  }
  std::vector<float> row(1000, 10.0f);
  history.Adjust(row, nullptr);
  EXPECT_EQ(row, std::vector<float>(1000, 7.0f));
}

}  // namespace
}  // namespace tactus::sampler_test
