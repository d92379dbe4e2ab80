// Orders and their parts: by hand, and against the definitions on random jobs.
#include "offline/plan/plan.h"

#include <gtest/gtest.h>

#include "offline/plan/jobs.h"

namespace tactus {
namespace {

using offline::BatchCostModel;
using offline::NodeTotals;
using offline::Plan;
using offline::PlanOptions;
using offline::PlanOrder;
using offline::PrefixTree;
using testing::Job;
using testing::kKeyTokens;
using testing::Llama8bOnA100;
using testing::RandomJob;
using testing::SetOf;
using testing::SharedTokens;

constexpr PlanOrder kOrders[] = {PlanOrder::kFcfs,    PlanOrder::kDfs,   PlanOrder::kRandom,
                                 PlanOrder::kBalance, PlanOrder::kBlend, PlanOrder::kBlendDualScan};

std::vector<int32_t> RequestsOf(const Plan& plan) {
  std::vector<int32_t> requests;
  for (int32_t i = 0; i < plan.size(); ++i) requests.push_back(plan.RequestAt(i));
  return requests;
}

std::vector<int32_t> RandomOutputs(uint64_t seed, size_t requests) {
  Rng rng(seed, 3);
  std::vector<int32_t> outputs;
  for (size_t i = 0; i < requests; ++i) {
    outputs.push_back(rng.Uniform() < 0.1 ? 0 : static_cast<int32_t>(rng.UniformInt(1, i % 5 == 0 ? 4000 : 40)));
  }
  return outputs;
}

// Two tasks with one system prompt each, and two requests that share nothing. Short answers make a request
// compute-heavy.
struct TwoTasks {
  Job job;
  std::vector<int32_t> outputs;
  TwoTasks() {
    const auto add = [this](TokenId system, int32_t prompt, TokenId question, int32_t output) {
      testing::JobRequest r;
      r.prompt.assign(static_cast<size_t>(system > 0 ? 100 : 0), system);
      r.prompt.resize(static_cast<size_t>(prompt), question);
      job.push_back(r);
      outputs.push_back(output);
    };
    add(1, 140, 11, 2);     // 0
    add(2, 140, 21, 2000);  // 1
    add(1, 140, 12, 3000);  // 2: unlike its siblings
    add(0, 120, 31, 500);   // 3
    add(2, 140, 22, 1500);  // 4
    add(1, 140, 13, 4);     // 5
    add(0, 120, 32, 1);     // 6
  }
};

TEST(Plan, HandMadeJobsHaveTheExpectedOrders) {
  const TwoTasks two;
  const PrefixTree tree = PrefixTree::Build(SetOf(two.job, kKeyTokens));
  const auto order = [&](PlanOrder which, double split_share = 0.01) {
    return RequestsOf(Plan::Make(tree, Llama8bOnA100(), two.outputs, {.order = which, .split_share = split_share}));
  };
  using Order = std::vector<int32_t>;
  EXPECT_EQ(order(PlanOrder::kFcfs), (Order{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(order(PlanOrder::kDfs), (Order{0, 2, 5, 1, 4, 3, 6}))
      << "prefixes in the order in which the job first names them";
  EXPECT_EQ(order(PlanOrder::kBalance), (Order{6, 0, 5, 3, 4, 1, 2})) << "shortest answers first";
  // No subtree is split: the first task is as heavy as its one long answer makes it.
  EXPECT_EQ(order(PlanOrder::kBlend, 0), (Order{6, 3, 4, 1, 0, 5, 2}));
  // 640 tokens are unique. Each task may spend half of the recompute budget; opening the first one costs 3 x 100.
  EXPECT_EQ(order(PlanOrder::kBlend, 299.0 / 320), (Order{6, 3, 4, 1, 0, 5, 2})) << "one token too few";
  EXPECT_EQ(order(PlanOrder::kBlend, 300.0 / 320), (Order{6, 0, 5, 3, 4, 1, 2}))
      << "the outlier moves to requests of its density";
  EXPECT_EQ(order(PlanOrder::kBlendDualScan, 0), order(PlanOrder::kBlend, 0)) << "one plan, scanned differently";
  EXPECT_EQ(order(PlanOrder::kBlendDualScan), order(PlanOrder::kBlend));
}

TEST(Plan, RandomIsAShuffleByItsSeed) {
  const Job job = RandomJob(1, 50);
  const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
  const std::vector<int32_t> outputs(50, 10);
  const auto shuffled = [&](uint64_t seed) {
    return RequestsOf(Plan::Make(tree, Llama8bOnA100(), outputs, {.order = PlanOrder::kRandom, .seed = seed}));
  };
  EXPECT_EQ(shuffled(1), shuffled(1));
  EXPECT_NE(shuffled(1), shuffled(2));
  EXPECT_NE(shuffled(1), RequestsOf(Plan::Make(tree, Llama8bOnA100(), outputs, {.order = PlanOrder::kFcfs})));
}

TEST(Plan, EveryRemainingRequestIsPlannedOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Job job = RandomJob(seed, 70);
    const std::vector<int32_t> outputs = RandomOutputs(seed, job.size());
    std::vector<int32_t> left;
    for (size_t i = 0; i < job.size(); ++i) {
      if (outputs[i] > 0) left.push_back(static_cast<int32_t>(i));
    }
    for (const PlanOrder order : kOrders) {
      for (const double split_share : {0.0, 0.01, 0.3}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " order " + std::to_string(static_cast<int>(order)) + " split " +
                     std::to_string(split_share));
        const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
        const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = order, .split_share = split_share});
        std::vector<int32_t> requests = RequestsOf(plan);
        const PrefixTree again = PrefixTree::Build(SetOf(job, kKeyTokens));
        ASSERT_EQ(requests, RequestsOf(Plan::Make(again, Llama8bOnA100(), outputs,
                                                  {.order = order, .split_share = split_share})));
        for (int32_t i = 0; i < plan.size(); ++i) {
          const auto own = static_cast<size_t>(requests[static_cast<size_t>(i)]);
          ASSERT_EQ(plan.OutputAt(i), outputs[own]);
          ASSERT_EQ(plan.PromptAt(i), static_cast<int32_t>(job[own].prompt.size()));
          const int32_t shared =
              i == 0 ? 0 : SharedTokens(job[static_cast<size_t>(plan.RequestAt(i - 1))], job[own], kKeyTokens);
          ASSERT_EQ(plan.SharedWithPrevious(i), std::max(0, shared)) << "position " << i;
        }
        std::sort(requests.begin(), requests.end());
        ASSERT_EQ(requests, left);
      }
    }
  }
}

int64_t SharedInOrder(const Plan& plan) {
  int64_t shared = 0;
  for (int32_t i = 0; i < plan.size(); ++i) shared += plan.SharedWithPrevious(i);
  return shared;
}

// Depth-first order shares everything possible; splitting gives up at most the allowed share.
TEST(Plan, SplittingRecomputesAtMostItsShare) {
  int relocated = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Job job = RandomJob(seed, 70);
    const std::vector<int32_t> outputs = RandomOutputs(seed, job.size());
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    const Plan dfs = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = PlanOrder::kDfs});
    const int64_t optimal = dfs.totals().prompt_tokens - dfs.totals().computed_tokens;
    ASSERT_EQ(SharedInOrder(dfs), optimal) << "seed " << seed;
    for (const double share : {0.0, 0.01, 0.1, 0.5, 10.0}) {
      const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {.split_share = share});
      const double allowed = share * static_cast<double>(plan.totals().computed_tokens);
      const int64_t again = optimal - SharedInOrder(plan);
      ASSERT_LE(static_cast<double>(again), allowed) << "seed " << seed << " share " << share;
      relocated += again > 0;
    }
  }
  EXPECT_GT(relocated, 20) << "nothing was split: the bound was not tested";
}

// Subtrees that were kept whole are sorted by density.
TEST(Plan, WholeSubtreesComeDensestFirst) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Job job = RandomJob(seed, 70);
    const std::vector<int32_t> outputs = RandomOutputs(seed, job.size());
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {.split_share = 0.1});
    const std::vector<NodeTotals> totals = offline::SumSubtrees(plan.tree(), Llama8bOnA100(), outputs);
    std::vector<int32_t> whole =
        offline::SplitTree(plan.tree(), totals, 0.1 * static_cast<double>(totals[0].computed_tokens));
    std::stable_sort(whole.begin(), whole.end(), [&](int32_t a, int32_t b) {
      return totals[static_cast<size_t>(a)].density() > totals[static_cast<size_t>(b)].density();
    });
    int32_t position = 0;
    for (const int32_t node : whole) {
      for (int32_t i = 0; i < totals[static_cast<size_t>(node)].requests; ++i, ++position) {
        const int32_t leaf = plan.LeafAt(position);
        ASSERT_TRUE(leaf >= node && leaf < plan.tree()[node].end) << "seed " << seed << " position " << position;
      }
    }
    ASSERT_EQ(position, plan.size());
  }
}

TEST(Plan, APlanWithoutRequestsIsEmpty) {
  const Job job = RandomJob(2, 5);
  const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
  const std::vector<int32_t> done(5, 0);
  for (const PlanOrder order : kOrders) {
    const Plan plan = Plan::Make(tree, Llama8bOnA100(), done, {.order = order});
    EXPECT_EQ(plan.size(), 0);
  }
}

}  // namespace
}  // namespace tactus
