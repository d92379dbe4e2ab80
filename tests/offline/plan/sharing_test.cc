// Sharing with a cache, compared with a cache that is searched linearly; and a plan's summary.
#include "offline/plan/sharing.h"

#include <gtest/gtest.h>

#include <numeric>

#include "offline/plan/jobs.h"
#include "offline/plan/plan_summary.h"
#include "offline/plan/start_order.h"

namespace tactus {
namespace {

using offline::Plan;
using offline::PlanOrder;
using offline::PrefixTree;
using offline::Sharing;
using testing::Job;
using testing::kKeyTokens;
using testing::Llama8bOnA100;
using testing::RandomJob;
using testing::SetOf;

constexpr int64_t kNoLimit = int64_t{1} << 60;

std::vector<int32_t> Ascending(const Plan& plan) {
  std::vector<int32_t> order(static_cast<size_t>(plan.size()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

int64_t SlowShared(const Plan& plan, const std::vector<int32_t>& starts, int64_t cache_tokens) {
  struct Entry {
    int32_t node, tokens;
    size_t last_use;
  };
  const PrefixTree& tree = plan.tree();
  std::vector<Entry> cache;
  int64_t shared = 0;
  for (size_t use = 0; use < starts.size(); ++use) {
    const int32_t leaf = plan.LeafAt(starts[use]);
    int32_t found = 0;
    for (int32_t node = leaf; node > 0; node = tree[node].parent) {
      const auto at = std::find_if(cache.begin(), cache.end(), [&](const Entry& e) { return e.node == node; });
      if (at != cache.end()) {
        found = std::max(found, tree[node].depth);
        at->last_use = use;
        continue;
      }
      const int32_t edge = tree[node].depth - tree[tree[node].parent].depth;
      cache.push_back({node, edge + (node == leaf ? plan.OutputAt(starts[use]) : 0), use});
    }
    shared += found;
    for (;;) {
      int64_t held = 0;
      for (const Entry& e : cache) held += e.tokens;
      const auto oldest = std::min_element(cache.begin(), cache.end(), [&](const Entry& a, const Entry& b) {
        return a.last_use != b.last_use ? a.last_use < b.last_use : tree[a.node].depth > tree[b.node].depth;
      });
      if (held <= cache_tokens || oldest->last_use == use) break;
      cache.erase(oldest);
    }
  }
  return shared;
}

TEST(Sharing, SharingEqualsThatOfALeastRecentlyUsedCache) {
  for (uint64_t seed = 1; seed < 16;
       seed += 1 + seed % 2) {  // groups have edges without tokens, which may be evicted in any order
    const Job job = RandomJob(seed, 60);
    Rng rng(seed);
    std::vector<int32_t> outputs;
    for (size_t i = 0; i < job.size(); ++i) outputs.push_back(static_cast<int32_t>(rng.UniformInt(1, 30)));
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    for (const PlanOrder order : {PlanOrder::kFcfs, PlanOrder::kDfs, PlanOrder::kRandom, PlanOrder::kBlend}) {
      const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = order});
      for (const int64_t cache : {int64_t{0}, int64_t{100}, int64_t{400}, int64_t{1500}, kNoLimit}) {
        const std::vector<int32_t> starts = offline::StartOrder(plan);
        ASSERT_EQ(offline::SharingOf(plan, starts, cache).shared_tokens, SlowShared(plan, starts, cache))
            << "seed " << seed << " order " << static_cast<int>(order) << " cache " << cache;
      }
    }
  }
}

// If nothing is evicted every order shares everything; depth-first needs room for one path only.
TEST(Sharing, DepthFirstIsOptimalWithRoomForOnePrompt) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Job job = RandomJob(seed, 60);
    const PrefixTree tree = PrefixTree::Build(SetOf(job, kKeyTokens));
    const std::vector<int32_t> outputs(job.size(), 5);
    const Plan dfs = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = PlanOrder::kDfs});
    const Sharing optimal = offline::OptimalSharing(dfs), one_path = offline::SharingOf(dfs, Ascending(dfs), 0);
    EXPECT_EQ(one_path.shared_tokens, optimal.shared_tokens) << "seed " << seed;
    EXPECT_NEAR(one_path.saved_s, optimal.saved_s, 1e-9 * optimal.saved_s);
    const Plan random = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = PlanOrder::kRandom});
    EXPECT_EQ(offline::SharingOf(random, Ascending(random), kNoLimit).shared_tokens, optimal.shared_tokens);
  }
}

TEST(PlanSummary, TheSummaryAddsUpToTheBounds) {
  // Four requests with one system prompt of 800 tokens and a question of 200, and 100 answer tokens each.
  Job job;
  for (TokenId question = 10; question < 14; ++question) {
    testing::JobRequest r;
    r.prompt.assign(800, 1);
    r.prompt.resize(1000, question);
    job.push_back(r);
  }
  const std::vector<int32_t> outputs(4, 100);
  const offline::BatchCostModel cost = Llama8bOnA100();
  const PrefixTree tree = PrefixTree::Build(SetOf(job, 16));
  const Plan plan = Plan::Make(tree, cost, outputs, {});
  const offline::PlanSummary s = offline::Summarize(plan, {.linear = 0.25}, 100'000);
  EXPECT_EQ(s.requests, 4);
  EXPECT_EQ(s.prompt_tokens, 4000);
  EXPECT_EQ(s.output_tokens, 400);
  EXPECT_DOUBLE_EQ(s.optimal_sharing, 2400.0 / 4000);
  EXPECT_DOUBLE_EQ(s.planned_sharing, 2400.0 / 4000);
  EXPECT_NEAR(s.compute_s, 4 * cost.ComputeSeconds(1000, 100), 1e-12);
  EXPECT_NEAR(s.memory_s, 4 * cost.MemorySeconds(1000, 100), 1e-12);
  const double shared_s = s.compute_s - 3 * cost.PrefixSeconds(800);
  EXPECT_NEAR(s.planned_compute_s, shared_s, 1e-12);
  EXPECT_NEAR(s.density, shared_s / s.memory_s, 1e-9);
  EXPECT_NEAR(s.bound_s, std::max(shared_s, s.memory_s), 1e-12);
  EXPECT_NEAR(s.practical_bound_s, std::max(shared_s, s.memory_s) + 0.25 * std::min(shared_s, s.memory_s), 1e-12);
  EXPECT_NEAR(s.sequential_s, shared_s + s.memory_s, 1e-12);
}

}  // namespace
}  // namespace tactus
