// Shards: every request once, equal work, equal density.
#include "batch/shards.h"

#include <gtest/gtest.h>

#include "batch/jobs.h"

namespace tactus {
namespace {

using batch::CutShards;
using batch::Plan;
using batch::PlanOrder;
using batch::PrefixTree;
using batch::Shard;
using testing::Job;
using testing::Llama8bOnA100;
using testing::RandomJob;
using testing::SetOf;

struct Work {
  double compute_s = 0, memory_s = 0, most_compute_s = 0, most_memory_s = 0;
};
Work WorkOf(const Plan& plan, const std::vector<int32_t>& positions) {
  Work work;
  for (const int32_t i : positions) {
    work.compute_s += plan.ComputeSecondsAt(i);
    work.memory_s += plan.MemorySecondsAt(i);
    work.most_compute_s = std::max(work.most_compute_s, plan.ComputeSecondsAt(i));
    work.most_memory_s = std::max(work.most_memory_s, plan.MemorySecondsAt(i));
  }
  return work;
}

std::vector<int32_t> AllPositions(const Plan& plan) {
  return Shard{0, plan.size(), plan.size(), plan.size()}.Positions();
}

TEST(Shards, HaveEveryRequestOnceAndTheSameWork) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Job job = RandomJob(seed, 2000);
    Rng rng(seed);
    std::vector<int32_t> outputs;
    for (size_t i = 0; i < job.size(); ++i) {
      outputs.push_back(static_cast<int32_t>(rng.UniformInt(1, rng.Uniform() < 0.2 ? 2000 : 20)));
    }
    const PrefixTree tree = PrefixTree::Build(SetOf(job, 4));
    for (const PlanOrder order : {PlanOrder::kBlend, PlanOrder::kBalance}) {
      const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = order});
      const Work all = WorkOf(plan, AllPositions(plan));
      for (const int32_t n : {1, 2, 3, 7, 16}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(n) + " shards");
        const auto shards = CutShards(plan, n);
        ASSERT_TRUE(shards.ok());
        ASSERT_EQ(shards->size(), static_cast<size_t>(n));
        std::vector<int> seen(static_cast<size_t>(plan.size()), 0);
        for (const Shard& shard : *shards) {
          const std::vector<int32_t> positions = shard.Positions();
          ASSERT_EQ(static_cast<int32_t>(positions.size()), shard.size());
          ASSERT_TRUE(std::is_sorted(positions.begin(), positions.end()));
          for (const int32_t i : positions) ++seen[static_cast<size_t>(i)];
          const Work own = WorkOf(plan, positions);
          // Each cut is off by a request or two at most.
          ASSERT_NEAR(own.memory_s, all.memory_s / n, 4 * all.most_memory_s);
          ASSERT_NEAR(own.compute_s, all.compute_s / n, 4 * all.most_compute_s + 0.02 * all.compute_s / n);
        }
        for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], 1) << "position " << i;
      }
    }
  }
}

// Requests that are all alike: no shard of them may be told from another, whatever the rounding.
TEST(Shards, OfLikeRequestsHaveTheSameNumber) {
  Job job;
  for (int32_t i = 0; i < 1000; ++i) job.push_back({{i, i, i, i, i, i}, {}});
  const PrefixTree tree = PrefixTree::Build(SetOf(job, 4));
  const std::vector<int32_t> outputs(1000, 50);
  const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {});
  for (const int32_t n : {2, 4, 5, 8}) {
    const auto shards = CutShards(plan, n);
    ASSERT_TRUE(shards.ok());
    for (const Shard& shard : *shards) EXPECT_NEAR(shard.size(), 1000.0 / n, 1.01) << n << " shards";
  }
}

// The wrong way round, as a job may name its requests: no cut has both, and the memory time is what is cut.
TEST(Shards, OfAPlanThatIsNotSortedHaveTheSameMemoryTime) {
  Job job;
  std::vector<int32_t> outputs;
  for (int32_t i = 0; i < 864; ++i) {
    job.push_back({{i, i, i, i, i, i}, {}});
    outputs.push_back(i < 100 ? 500 : 2);
  }
  const PrefixTree tree = PrefixTree::Build(SetOf(job, 4));
  const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = PlanOrder::kFcfs});
  const Work all = WorkOf(plan, AllPositions(plan));
  const auto shards = CutShards(plan, 4);
  ASSERT_TRUE(shards.ok());
  for (const Shard& shard : *shards) {
    EXPECT_NEAR(WorkOf(plan, shard.Positions()).memory_s, all.memory_s / 4, 2 * all.most_memory_s)
        << shard.left_begin << " to " << shard.left_end << " and " << shard.right_begin << " to " << shard.right_end;
  }
}

TEST(Shards, MoreThanRequestsAreEmpty) {
  const Job job = RandomJob(5, 3);
  const PrefixTree tree = PrefixTree::Build(SetOf(job, 4));
  const std::vector<int32_t> outputs(3, 5), done(3, 0);
  for (const auto& left : {outputs, done}) {
    const Plan plan = Plan::Make(tree, Llama8bOnA100(), left, {});
    const auto shards = CutShards(plan, 10);
    ASSERT_TRUE(shards.ok());
    int32_t requests = 0;
    for (const Shard& shard : *shards) requests += shard.size();
    EXPECT_EQ(requests, plan.size());
  }
}

TEST(Shards, NoneIsRefused) {
  const Job job = RandomJob(5, 3);
  const PrefixTree tree = PrefixTree::Build(SetOf(job, 4));
  const Plan plan = Plan::Make(tree, Llama8bOnA100(), {5, 5, 5}, {});
  EXPECT_EQ(CutShards(plan, 0).status().param(), "shard");
}

}  // namespace
}  // namespace tactus
