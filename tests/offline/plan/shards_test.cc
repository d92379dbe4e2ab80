// Shards: every request once, equal work, equal density, also if answers are not as long as estimated.
#include "offline/plan/shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "offline/plan/jobs.h"

namespace tactus {
namespace {

using offline::AssignShards;
using offline::PrefixTree;
using testing::Job;
using testing::kKeyTokens;
using testing::Llama8bOnA100;
using testing::RandomJob;
using testing::SetOf;
using testing::SlowTotals;
using testing::TotalsOf;

// [shard] its requests.
std::vector<std::vector<int32_t>> Cut(const Job& job, const std::vector<int32_t>& outputs, int32_t shards) {
  const auto shard_of = AssignShards(PrefixTree::Build(SetOf(job, kKeyTokens)), Llama8bOnA100(), outputs, shards);
  std::vector<std::vector<int32_t>> cut(static_cast<size_t>(shards));
  if (!shard_of.ok()) {
    ADD_FAILURE() << shard_of.status().message();
    return cut;
  }
  EXPECT_EQ(shard_of->size(), job.size());
  for (size_t i = 0; i < shard_of->size(); ++i) {
    const int32_t shard = (*shard_of)[i];
    if (outputs[i] == 0) {
      EXPECT_EQ(shard, -1) << "request " << i << " is done";
    } else if (shard < 0 || shard >= shards) {
      ADD_FAILURE() << "request " << i << " is in shard " << shard << " of " << shards;
    } else {
      cut[static_cast<size_t>(shard)].push_back(static_cast<int32_t>(i));
    }
  }
  return cut;
}

std::vector<int32_t> All(const Job& job) {
  std::vector<int32_t> all(job.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

SlowTotals WorkOf(const Job& job, const std::vector<int32_t>& requests, const std::vector<int32_t>& outputs) {
  return TotalsOf(job, requests, outputs, Llama8bOnA100(), kKeyTokens);
}

// A prompt of `tokens` tokens: the first `head_tokens` are common to all prompts with this `head`, the rest is unique.
void Add(Job* job, int32_t head, int32_t head_tokens, int32_t tokens) {
  testing::JobRequest r;
  for (int32_t k = 0; k < head_tokens; ++k) r.prompt.push_back(-1 - head);
  const auto own = static_cast<TokenId>(job->size());
  for (int32_t k = head_tokens; k < tokens; ++k) r.prompt.push_back(own);
  job->push_back(std::move(r));
}

TEST(Shards, ShardsHaveEveryRequestOnceAndEqualWork) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Job job = RandomJob(seed, 2000);
    Rng rng(seed);
    std::vector<int32_t> outputs;
    for (size_t i = 0; i < job.size(); ++i) {
      outputs.push_back(static_cast<int32_t>(rng.UniformInt(1, rng.Uniform() < 0.2 ? 2000 : 20)));
    }
    outputs[7] = 0;
    const SlowTotals all = WorkOf(job, All(job), outputs);
    const SlowTotals most = WorkOf(
        job, {static_cast<int32_t>(std::max_element(outputs.begin(), outputs.end()) - outputs.begin())}, outputs);
    for (const int32_t n : {1, 2, 3, 7, 16}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(n) + " shards");
      size_t requests = 0;
      SlowTotals together;
      for (const auto& shard : Cut(job, outputs, n)) {
        requests += shard.size();
        const SlowTotals own = WorkOf(job, shard, outputs);
        EXPECT_NEAR(own.memory_s, all.memory_s / n, 0.01 * all.memory_s / n + 2 * most.memory_s);
        EXPECT_NEAR(own.compute_s, all.compute_s / n, 0.05 * all.compute_s / n + 2 * most.compute_s);
        together.compute_s += own.compute_s;
      }
      EXPECT_EQ(requests, job.size() - 1);
      EXPECT_LE(together.compute_s, 1.03 * all.compute_s);
    }
  }
}

// Not known before the run: all answers of one kind are long, of one task, of long prompts or of prompts that share
// nothing. Each shard has its share of every kind.
TEST(Shards, ShardsHaveEqualWorkWhateverTheLengths) {
  Job job;
  std::vector<int32_t> kind;
  for (int32_t i = 0; i < 8000; ++i) {
    kind.push_back(i % 50 == 0 ? 3 : i % 3);
    if (kind.back() == 0) Add(&job, i % 400, 100, 120);
    if (kind.back() == 1) Add(&job, 0, 0, 200 + i % 7);
    if (kind.back() == 2) Add(&job, 0, 0, 20 + i % 5);
    if (kind.back() == 3) Add(&job, 0, 0, 20);
  }
  const std::vector<int32_t> thought(job.size(), 4000);
  for (const int32_t n : {2, 5, 16}) {
    const auto cut = Cut(job, thought, n);
    for (int32_t k = 0; k < 4; ++k) {
      const auto all = static_cast<double>(std::count(kind.begin(), kind.end(), k));
      for (size_t s = 0; s < cut.size(); ++s) {
        const auto own =
            std::count_if(cut[s].begin(), cut[s].end(), [&](int32_t i) { return kind[static_cast<size_t>(i)] == k; });
        EXPECT_NEAR(static_cast<double>(own), all / n, 0.05 * all / n + 3 * std::sqrt(all / n))
            << "requests of kind " << k << " in shard " << s << " of " << n;
      }
    }
  }
}

// Prefixes that are too long to be computed by each shard: a task is cut no more often than necessary.
TEST(Shards, LongPrefixesStayTogether) {
  Job job;
  for (int32_t i = 0; i < 600; ++i) Add(&job, i % 30, 400, 408);
  const std::vector<int32_t> outputs(job.size(), 10);
  const SlowTotals all = WorkOf(job, All(job), outputs);
  for (const int32_t n : {2, 4, 8}) {
    int64_t computed = 0;
    for (const auto& shard : Cut(job, outputs, n)) {
      const SlowTotals own = WorkOf(job, shard, outputs);
      computed += own.computed_tokens;
      EXPECT_NEAR(own.memory_s, all.memory_s / n, 0.06 * all.memory_s / n) << n << " shards";
    }
    // A few more prefixes per shard; dealt out, it would be one for each shard and task.
    EXPECT_LE(computed, all.computed_tokens + 3 * n * 400) << n << " shards";
  }
}

// Single requests fill the gaps that tasks leave, not the reverse: otherwise no shard would have room for a whole task.
TEST(Shards, ShardsHaveRoomForTasks) {
  Job job;
  std::vector<int32_t> outputs;
  for (int32_t i = 0; i < 240; ++i) Add(&job, i % 3, 400, 410), outputs.push_back(10);
  const std::vector<int32_t> tasks = All(job);
  for (int32_t i = 0; i < 500; ++i) Add(&job, 0, 0, 25), outputs.push_back(1);  // denser, so first in the tree
  const int64_t once = WorkOf(job, tasks, outputs).computed_tokens;
  int64_t computed = 0;
  for (auto shard : Cut(job, outputs, 4)) {
    std::erase_if(shard, [](int32_t i) { return i >= 240; });
    computed += WorkOf(job, shard, outputs).computed_tokens;
  }
  EXPECT_LE(computed, once + 400);
}

// One prefix for nearly all of the job: every shard has a part of it.
TEST(Shards, APrefixOfMostOfTheJobIsSharedByAllShards) {
  Job job;
  for (int32_t i = 0; i < 6000; ++i) Add(&job, 0, i % 4 == 0 ? 0 : 1000, 1020);
  const std::vector<int32_t> outputs(job.size(), 10);
  for (const auto& shard : Cut(job, outputs, 4)) {
    const auto own = std::count_if(shard.begin(), shard.end(), [](int32_t i) { return i % 4 == 0; });
    EXPECT_NEAR(static_cast<double>(own), 375, 20);
    EXPECT_NEAR(static_cast<double>(shard.size()), 1500, 30);
  }
}

// One prefix that is too long for every shard does not keep requests with short prefixes together.
TEST(Shards, RequestsWithShortPrefixesAreDealtOutBesideALongOne) {
  Job job;
  for (int32_t i = 0; i < 500; ++i) Add(&job, 0, 400, 408);
  for (int32_t i = 0; i < 12; ++i) Add(&job, 1, 8, 16);
  const std::vector<int32_t> outputs(job.size(), 1);
  for (const auto& shard : Cut(job, outputs, 4)) {
    const auto own = std::count_if(shard.begin(), shard.end(), [](int32_t i) { return i >= 500; });
    EXPECT_NEAR(static_cast<double>(own), 3, 2);
  }
}

// Identical requests: shards are equal despite rounding.
TEST(Shards, IdenticalRequestsAreDividedEvenly) {
  Job job;
  for (int32_t i = 0; i < 1000; ++i) Add(&job, 0, 0, 6);
  const std::vector<int32_t> outputs(1000, 50);
  for (const int32_t n : {2, 4, 5, 8}) {
    for (const auto& shard : Cut(job, outputs, n)) {
      EXPECT_NEAR(static_cast<double>(shard.size()), 1000.0 / n, 1.01) << n << " shards";
    }
  }
}

TEST(Shards, ShardsWithoutRequestsAreEmpty) {
  const Job job = RandomJob(5, 3);
  const auto cut = Cut(job, {5, 5, 5}, 10);
  EXPECT_EQ(std::count_if(cut.begin(), cut.end(), [](const auto& shard) { return shard.size() == 1; }), 3);
  Cut(job, {0, 0, 0}, 10);
}

TEST(Shards, ZeroAndTooManyShardsAreRefused) {
  const Job job = RandomJob(5, 3);
  const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
  for (const int32_t shards : {0, -1, offline::kMostShards + 1, INT32_MAX}) {
    EXPECT_EQ(AssignShards(tree, Llama8bOnA100(), {5, 5, 5}, shards).status().param(), "shard") << shards;
  }
}

// The cut depends only on what every process knows, not on the rates that each has measured.
TEST(Shards, ShardsDoNotDependOnTheDevicesRates) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Job job = RandomJob(seed, 200);
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    std::vector<int32_t> outputs;
    for (const auto& r : job) outputs.push_back(r.traits.max_output_tokens);
    offline::BatchCostModel cost = Llama8bOnA100();
    cost.flops_per_token *= 1e-26;
    cost.attention_flops *= 1e-26;
    const auto shards = *AssignShards(tree, cost, outputs, 3);
    cost.flops_per_s = 1e308;  // seconds with hardly a significant digit
    cost.bytes_per_s *= 3.7654321;
    EXPECT_EQ(*AssignShards(tree, cost, outputs, 3), shards) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tactus
