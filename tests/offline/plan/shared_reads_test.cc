// The KV that requests read if attention reads a shared prefix once for all of them.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "base/rng.h"
#include "offline/plan/jobs.h"
#include "offline/plan/plan.h"
#include "offline/plan/totals.h"

namespace tactus::shared_reads_test {
namespace {

using offline::Plan;
using offline::PrefixTree;
using testing::Job;
using testing::Llama8bOnA100;
using testing::SetOf;

constexpr int32_t kBlock = 16, kLeastTokens = 128;

// Prompts of up to 400 tokens that diverge at any block.
Job Conversations(uint64_t seed, int32_t requests) {
  Rng rng(seed, 5);
  Job job;
  for (int32_t i = 0; i < requests; ++i) {
    testing::JobRequest r;
    if (!job.empty() && rng.Uniform() < 0.9) {
      r.prompt = job[static_cast<size_t>(rng.UniformInt(0, i - 1))].prompt;
      r.prompt.resize(static_cast<size_t>(rng.UniformInt(1, static_cast<int64_t>(r.prompt.size()))));
    }
    for (int64_t k = rng.UniformInt(1, 150); k > 0; --k) r.prompt.push_back(static_cast<TokenId>(rng.UniformInt(0, 9)));
    r.prompt.resize(std::min<size_t>(r.prompt.size(), 400));
    job.push_back(std::move(r));
  }
  return job;
}

// Per token: it is read together by all requests with the same tokens up to it, and up to at least 128.
std::vector<double> SlowReads(const Job& job, const std::vector<int32_t>& outputs, double at_once) {
  std::map<std::vector<TokenId>, int32_t> sharers;
  const auto shared_blocks = [](const testing::JobRequest& r) { return (r.prompt.size() - 1) / kBlock; };
  for (size_t i = 0; i < job.size(); ++i) {
    if (outputs[i] == 0) continue;
    for (size_t b = 1; b <= shared_blocks(job[i]); ++b)
      ++sharers[{job[i].prompt.begin(), job[i].prompt.begin() + static_cast<int64_t>(b * kBlock)}];
  }
  std::vector<double> read;
  for (const testing::JobRequest& r : job) {
    double own = 0;
    for (size_t t = 0; t < r.prompt.size(); ++t) {
      const size_t end = std::max<size_t>(t / kBlock + 1, kLeastTokens / kBlock);
      int32_t together = 1;
      if (end <= shared_blocks(r))
        together = std::max(1, sharers[{r.prompt.begin(), r.prompt.begin() + static_cast<int64_t>(end * kBlock)}]);
      own += 1 / std::min<double>(together, std::max(1.0, at_once));
    }
    read.push_back(own);
  }
  return read;
}

TEST(ReadPrompts, ReadPromptsEqualTheSharesComputedTokenByToken) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Job job = Conversations(seed, 60);
    Rng rng(seed);
    std::vector<int32_t> outputs;
    for (size_t i = 0; i < job.size(); ++i)
      outputs.push_back(rng.Uniform() < 0.2 ? 0 : static_cast<int32_t>(rng.UniformInt(1, 99)));
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kBlock));
    for (const double at_once : {0.0, 1.0, 2.5, 1000.0}) {
      const std::vector<double> read = offline::ReadPrompts(tree, outputs, at_once);
      const std::vector<double> slow = SlowReads(job, outputs, at_once);
      for (size_t i = 0; i < job.size(); ++i) {
        if (outputs[i] == 0) continue;
        ASSERT_NEAR(read[i], slow[i], 1e-9) << "seed " << seed << ", request " << i << ", " << at_once << " at once";
      }
    }
  }
}

// One prompt of 512 tokens for all requests of a task, beside requests of the same shape that share nothing.
struct Task {
  int32_t sharers, alone;
  std::vector<int32_t> outputs;
  PrefixTree tree;
  Task(int32_t sharing, int32_t others) : sharers(sharing), alone(others) {
    Job job;
    for (int32_t i = 0; i < sharers + alone; ++i) {
      testing::JobRequest r;
      r.prompt.assign(512, i < sharers ? 0 : i);
      r.prompt.push_back(100'000 + i);
      job.push_back(std::move(r));
    }
    outputs.assign(job.size(), 128);
    tree = PrefixTree::Build(SetOf(job, kBlock));
  }
  Plan Made(bool shared_reads, int64_t kv_tokens) const {
    return Plan::Make(tree, Llama8bOnA100(), outputs, {.kv_tokens = kv_tokens, .shared_reads = shared_reads});
  }
};

TEST(SharedReads, SharedReadsCountOnceForRequestsThatRunTogether) {
  const Task task(20, 0);
  const double own = 1 + 128 / 2.0;  // tokens that each reads per step for itself, on average
  const double each = task.Made(false, 1 << 20).totals().memory_s;
  EXPECT_NEAR(task.Made(true, 1 << 20).totals().memory_s / each, (512 / 20.0 + own) / (512 + own), 1e-9);
  const Plan small = task.Made(true, 5 * (513 + 64));  // five fit
  EXPECT_EQ(small.sequences_at_once(), 5);
  EXPECT_NEAR(small.totals().memory_s / each, (512 / 5.0 + own) / (512 + own), 1e-9);
  double sum = 0;
  for (int32_t i = 0; i < small.size(); ++i) sum += small.MemorySecondsAt(i);
  EXPECT_NEAR(sum, small.totals().memory_s, 1e-9 * sum) << "the parts add up to the whole";
}

// If prefixes are only computed once, requests that share are less dense; if they are also read once, denser.
TEST(SharedReads, SharedReadsChangeTheOrder) {
  const Task task(20, 20);
  const auto first_half = [&](bool shared_reads) {
    const Plan plan = task.Made(shared_reads, 1 << 20);
    int32_t sharing = 0;
    for (int32_t i = 0; i < 20; ++i) sharing += plan.RequestAt(i) < task.sharers;
    return sharing;
  };
  EXPECT_EQ(first_half(false), 0);
  EXPECT_EQ(first_half(true), 20);
}

TEST(SequencesAtOnce, SequencesAtOnceIsTheNumberThatFits) {
  const Task task(0, 10);  // each holds 513 tokens and half of 128
  const auto at_once = [&](int32_t sequences, int64_t kv_tokens) {
    return offline::SequencesAtOnce(task.tree, task.outputs, sequences, kv_tokens);
  };
  EXPECT_EQ(at_once(8, 0), 8);
  EXPECT_EQ(at_once(8, 577 * 5), 5);
  EXPECT_EQ(at_once(8, 577 * 50), 8);
  EXPECT_EQ(at_once(0, 577 * 50), 50);
  EXPECT_EQ(at_once(0, 0), 0);
}

}  // namespace
}  // namespace tactus::shared_reads_test
