// The requests that are sampled, and the estimates that their answers give for the others.
#include "offline/plan/output_lengths.h"

#include <gtest/gtest.h>

#include <cmath>

#include "offline/plan/jobs.h"

namespace tactus {
namespace {

using offline::ChooseSample;
using offline::EstimateOutputs;
using offline::PrefixTree;
using offline::PromptSet;
using testing::Job;
using testing::JobRequest;
using testing::kKeyTokens;
using testing::RandomJob;
using testing::SetOf;
using testing::SharedTokens;

// `count` requests below one prefix, each with its own question.
void AddTask(Job* job, TokenId task, int32_t count, bool known = false) {
  for (int32_t i = 0; i < count; ++i) {
    JobRequest r;
    r.prompt.assign(8, task);
    for (int k = 0; k < 4; ++k) r.prompt.push_back(static_cast<TokenId>(100 + (i >> (4 * k)) % 16));
    r.prompt.push_back(1);
    r.traits = {.max_output_tokens = 1000, .output_is_known = known};
    job->push_back(r);
  }
}

// By the definition: the mean of the measured requests that share the most with each request.
std::vector<int32_t> SlowEstimates(const Job& job, const std::vector<int32_t>& measured) {
  std::vector<int32_t> outputs;
  for (size_t i = 0; i < job.size(); ++i) {
    const offline::RequestTraits& traits = job[i].traits;
    if (traits.output_is_known) {
      outputs.push_back(traits.max_output_tokens);
      continue;
    }
    if (measured[i] > 0) {
      outputs.push_back(measured[i]);
      continue;
    }
    int32_t most = -2;
    int64_t tokens = 0, count = 0;
    for (size_t k = 0; k < job.size(); ++k) {
      if (measured[k] == 0 || job[k].traits.output_is_known) continue;
      const int32_t shared = SharedTokens(job[i], job[k], kKeyTokens);
      if (shared < most) continue;
      if (shared > most) tokens = count = 0;
      most = shared;
      tokens += measured[k];
      ++count;
    }
    // All requests with that prefix are in the subtree, not only those that diverge there: the maximum is the depth at
    // which the path to the request first has samples.
    outputs.push_back(count == 0 ? traits.max_output_tokens
                                 : static_cast<int32_t>(std::clamp<int64_t>(
                                       std::llround(static_cast<double>(tokens) / static_cast<double>(count)), 1,
                                       traits.max_output_tokens)));
  }
  return outputs;
}

TEST(OutputLengths, EstimatesAreThoseOfTheSmallestSubtreeWithSamples) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Job job = RandomJob(seed, 60);
    const PromptSet prompts = SetOf(job, kKeyTokens);
    const PrefixTree tree = PrefixTree::Build(prompts);
    for (const double share : {0.0, 0.05, 0.3, 1.0}) {
      Rng rng(seed);
      std::vector<int32_t> measured;
      for (const JobRequest& r : job) {
        const bool runs = rng.Uniform() < share;
        measured.push_back(runs ? static_cast<int32_t>(rng.UniformInt(1, r.traits.max_output_tokens)) : 0);
      }
      const std::vector<int32_t> got = EstimateOutputs(tree, prompts, measured), want = SlowEstimates(job, measured);
      for (size_t i = 0; i < job.size(); ++i) {
        ASSERT_EQ(got[i], want[i]) << "seed " << seed << " share " << share << " request " << i;
      }
    }
  }
}

TEST(OutputLengths, ASubtreeWithoutSamplesHasItsSiblingsMean) {
  Job job;
  AddTask(&job, 1, 3);  // 0 to 2
  AddTask(&job, 2, 2);  // 3, 4
  job.push_back({{9, 9, 9}, {.max_output_tokens = 50}});
  const PromptSet prompts = SetOf(job, kKeyTokens);
  const PrefixTree tree = PrefixTree::Build(prompts);
  EXPECT_EQ(EstimateOutputs(tree, prompts, {}), (std::vector<int32_t>{1000, 1000, 1000, 1000, 1000, 50}))
      << "nothing is measured: max_tokens";
  EXPECT_EQ(EstimateOutputs(tree, prompts, {10, 0, 0, 0, 0, 0}), (std::vector<int32_t>{10, 10, 10, 10, 10, 10}));
  EXPECT_EQ(EstimateOutputs(tree, prompts, {10, 30, 0, 0, 500, 0}), (std::vector<int32_t>{10, 30, 20, 500, 500, 50}))
      << "the mean of all is 180, and the last request may generate at most 50";
}

// Two of four answers have ended, after 10 and 30 tokens, and two are at 40: 120 tokens for two ends.
TEST(OutputLengths, RunningAnswersCountWithTheirTokensSoFar) {
  Job job;
  AddTask(&job, 1, 5);  // 0 to 4
  AddTask(&job, 2, 2);  // 5, 6
  const PromptSet prompts = SetOf(job, kKeyTokens);
  const PrefixTree tree = PrefixTree::Build(prompts);
  EXPECT_EQ(EstimateOutputs(tree, prompts, {10, 30, -40, -40, 0, 0, 0}),
            (std::vector<int32_t>{10, 30, 60, 60, 60, 60, 60}));
  EXPECT_EQ(EstimateOutputs(tree, prompts, {10, 30, -40, -900, 0, 0, 0}),
            (std::vector<int32_t>{10, 30, 490, 900, 490, 490, 490}))
      << "a running answer is at least as long as now";
  EXPECT_EQ(EstimateOutputs(tree, prompts, {10, 30, 0, 0, 0, -40, 0}),
            (std::vector<int32_t>{10, 30, 20, 20, 20, 1000, 1000}))
      << "none of the second task has ended: max_tokens";
}

TEST(Sample, TheSampleIsAShareOfRequestsOfUnknownLength) {
  Job job;
  AddTask(&job, 1, 3000);
  AddTask(&job, 2, 3000, /*known=*/true);
  const PromptSet prompts = SetOf(job, kKeyTokens);
  const PrefixTree tree = PrefixTree::Build(prompts);
  const auto sample = ChooseSample(tree, prompts, {});
  EXPECT_EQ(sample.size(), 30u) << "1 % of 3000";
  EXPECT_TRUE(std::is_sorted(sample.begin(), sample.end()));
  for (const int32_t i : sample) EXPECT_LT(i, 3000) << "request " << i << " has a known length";
  EXPECT_EQ(sample, ChooseSample(tree, prompts, {})) << "the same seed";
  EXPECT_NE(sample, ChooseSample(tree, prompts, {.seed = 1})) << "another seed";
  EXPECT_EQ(ChooseSample(tree, prompts, {.share = 1}).size(), 3000u);
}

TEST(Sample, EverySubtreeOfTheRootHasAFewSamples) {
  Job job;
  for (TokenId task = 1; task <= 6; ++task) AddTask(&job, task, 50);
  AddTask(&job, 7, 2000);
  const PromptSet prompts = SetOf(job, kKeyTokens);
  const auto sample = ChooseSample(PrefixTree::Build(prompts), prompts, {});
  std::vector<int> of_task(7, 0);
  for (const int32_t i : sample) ++of_task[static_cast<size_t>(std::min(6, i / 50))];
  for (int task = 0; task < 6; ++task) EXPECT_GE(of_task[static_cast<size_t>(task)], 4) << "task " << task;
  EXPECT_LE(sample.size(), 2u * 23) << "1 % of 2300 is drawn, and at most as many are added";
}

// A job without shared prefixes has as many subtrees as requests, but not all requests are sampled.
TEST(Sample, PromptsThatShareNothingAreNotAllSampled) {
  Job job;
  for (int32_t i = 0; i < 1000; ++i) job.push_back({{i, i, i, i, i, i}, {}});
  const PromptSet prompts = SetOf(job, kKeyTokens);
  EXPECT_EQ(ChooseSample(PrefixTree::Build(prompts), prompts, {}).size(), 10u);
}

TEST(Sample, TheSampleOfAJobOfKnownLengthsIsEmpty) {
  Job job;
  AddTask(&job, 1, 20, /*known=*/true);
  const PromptSet prompts = SetOf(job, kKeyTokens);
  EXPECT_TRUE(ChooseSample(PrefixTree::Build(prompts), prompts, {}).empty());
  const PromptSet none(0, kKeyTokens);
  EXPECT_TRUE(ChooseSample(PrefixTree::Build(none), none, {}).empty());
}

}  // namespace
}  // namespace tactus
