// Starts from both ends: their order, and the density of a blended job while it runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "offline/plan/jobs.h"
#include "offline/plan/plan.h"
#include "offline/plan/sharing.h"
#include "offline/plan/start_order.h"

namespace tactus {
namespace {

using offline::Plan;
using offline::PlanOrder;
using offline::PrefixTree;
using testing::Job;
using testing::Llama8bOnA100;
using testing::SetOf;

// Requests of two kinds that share nothing: first `dense` ones, then `heavy` ones, of p prompt and d answer tokens.
struct TwoKinds {
  int32_t dense = 0, heavy = 0;
  int32_t dense_p = 512, dense_d = 256, heavy_p = 256, heavy_d = 16384;

  Plan Made(PlanOrder order = PlanOrder::kBlend) const {
    offline::PromptSet prompts;
    std::vector<int32_t> outputs;
    for (int32_t i = 0; i < dense + heavy; ++i) {
      offline::RequestTraits traits;
      traits.output_is_known = true;
      traits.max_output_tokens = i < dense ? dense_d : heavy_d;
      outputs.push_back(static_cast<int32_t>(traits.max_output_tokens));
      EXPECT_TRUE(prompts.AddKeys({}, i < dense ? dense_p : heavy_p, traits).ok());
    }
    return Plan::Make(PrefixTree::Build(prompts), Llama8bOnA100(), outputs, {.order = order});
  }
  // Number of heavy requests started after each tenth of the starts: 10 %, 20 %, ...
  std::vector<int32_t> HeavyByTenths(const Plan& plan) const {
    std::vector<int32_t> by_tenth;
    int32_t started = 0, at = 0;
    for (const int32_t position : offline::StartOrder(plan)) {
      started += plan.RequestAt(position) >= dense;
      if (++at * 10 % plan.size() < 10) by_tenth.push_back(started);
    }
    return by_tenth;
  }
};

// BlendServe, figure 5: Llama-3.1-8B on an A100-80GB with 20 GB for weights and buffers; nodes of 512/256 and 256/16384
// tokens; the job's density is 1.27. They get 19.3 and 40.7 of the 60 GB.
TEST(StartOrder, SplitsAsInThePapersExample) {
  const offline::BatchCostModel cost = Llama8bOnA100();
  const auto density = [&](int64_t p, int64_t d) { return cost.ComputeSeconds(p, d) / cost.MemorySeconds(p, d); };
  EXPECT_NEAR(density(512, 256), 3.73, 0.02 * 3.73);
  EXPECT_NEAR(density(256, 16384), 0.096, 0.02 * 0.096);
  TwoKinds job{.heavy = 200};
  const double dense_c = cost.ComputeSeconds(512, 256), dense_m = cost.MemorySeconds(512, 256);
  const double heavy_c = cost.ComputeSeconds(256, 16384), heavy_m = cost.MemorySeconds(256, 16384);
  job.dense = static_cast<int32_t>(std::lround(200 * (1.27 * heavy_m - heavy_c) / (dense_c - 1.27 * dense_m)));
  const Plan plan = job.Made();
  ASSERT_NEAR(plan.totals().density(), 1.27, 0.001);
  const std::vector<int32_t> starts = offline::StartOrder(plan);
  double left_s = 0, right_s = 0;
  for (size_t i = starts.size() / 5; i < starts.size() * 4 / 5; ++i) {
    (plan.RequestAt(starts[i]) < job.dense ? left_s : right_s) += plan.MemorySecondsAt(starts[i]);
  }
  EXPECT_NEAR(60 * left_s / (left_s + right_s), 19.3, 0.4);
}

// At any moment the started requests have the job's density, except for one request.
TEST(StartOrder, StartedRequestsHaveTheJobsDensity) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Job job = testing::RandomJob(seed, 300);
    Rng rng(seed);
    std::vector<int32_t> outputs;
    for (size_t i = 0; i < job.size(); ++i) {
      outputs.push_back(static_cast<int32_t>(rng.Uniform() < 0.1 ? rng.UniformInt(500, 900) : rng.UniformInt(1, 9)));
    }
    const PrefixTree tree = PrefixTree::Build(SetOf(job, 4));
    for (const PlanOrder order : {PlanOrder::kBlend, PlanOrder::kBlendDualScan, PlanOrder::kBalance}) {
      const Plan plan = Plan::Make(tree, Llama8bOnA100(), outputs, {.order = order});
      // Computed from the request itself: its compute after its neighbour's prefix, or alone.
      std::vector<double> compute_s;
      double all_compute_s = 0, all_memory_s = 0, largest_s = 0;
      for (int32_t i = 0; i < plan.size(); ++i) {
        const int32_t shared = order != PlanOrder::kBalance ? plan.SharedWithPrevious(i) : 0;
        compute_s.push_back(plan.cost().ComputeSeconds(plan.PromptAt(i), plan.OutputAt(i)) -
                            plan.cost().PrefixSeconds(shared));
        all_compute_s += compute_s.back();
        all_memory_s += plan.MemorySecondsAt(i);
      }
      const double density = all_compute_s / all_memory_s;
      const auto part = [&](int32_t i) {
        return compute_s[static_cast<size_t>(i)] - density * plan.MemorySecondsAt(i);
      };
      for (int32_t i = 0; i < plan.size(); ++i) largest_s = std::max(largest_s, std::abs(part(i)));
      // A dense subtree may contain requests that are not dense, several in a row.
      const double most_off_s = order == PlanOrder::kBalance ? largest_s : 3 * largest_s;
      double ahead_s = 0;
      int counted = 0;
      for (const int32_t position : offline::StartOrder(plan)) {
        ahead_s += part(position);
        ASSERT_GE(ahead_s, -most_off_s) << "seed " << seed;
        ASSERT_LE(ahead_s, most_off_s) << "seed " << seed;
        ++counted;
      }
      ASSERT_EQ(counted, plan.size());
    }
  }
}

// Answers are four times as long as estimated: the two ends still finish together.
TEST(StartOrder, AnEstimateWrongByAFactorChangesLittle) {
  const TwoKinds right{.dense = 20'000, .heavy = 100, .dense_d = 2},
      wrong{.dense = 20'000, .heavy = 100, .dense_d = 2, .heavy_d = 4096};
  const std::vector<int32_t> with_right = right.HeavyByTenths(right.Made());
  const std::vector<int32_t> with_wrong = wrong.HeavyByTenths(wrong.Made());
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(with_right[i], with_wrong[i], 2) << "after " << i + 1 << " tenths";
}

// A compute-heavy task with a long system prompt beside a memory-heavy one, as in the paper's mixes.
struct Mix {
  Job job;
  std::vector<int32_t> outputs;
  explicit Mix(int32_t heavy, int32_t light) {
    Rng rng(9);
    const auto add = [&](TokenId system, int32_t system_tokens, int64_t prompt, int64_t output) {
      testing::JobRequest r;
      r.prompt.assign(static_cast<size_t>(system_tokens), system);
      for (int64_t k = 0; k < prompt; ++k) r.prompt.push_back(static_cast<TokenId>(rng.UniformInt(100, 30'000)));
      job.push_back(std::move(r));
      outputs.push_back(static_cast<int32_t>(output));
    };
    for (int32_t i = 0; i < light; ++i) add(1 + i % 7, 256, rng.UniformInt(40, 200), rng.UniformInt(1, 20));
    for (int32_t i = 0; i < heavy; ++i) add(50, 64, rng.UniformInt(20, 80), rng.UniformInt(2000, 6000));
    for (size_t i = job.size(); i > 1; --i) {
      const auto k = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(i) - 1));
      std::swap(job[i - 1], job[k]);
      std::swap(outputs[i - 1], outputs[k]);
    }
  }
};

TEST(Blend, SharesAsMuchAsDepthFirst) {
  const Mix mix(400, 6000);
  const PrefixTree tree = PrefixTree::Build(SetOf(mix.job, 16));
  constexpr int64_t kCacheTokens = 40'000;
  const auto plan_of = [&](PlanOrder order) {
    return Plan::Make(tree, Llama8bOnA100(), mix.outputs, {.order = order});
  };
  const double optimal = offline::OptimalSharing(plan_of(PlanOrder::kDfs)).ratio();
  const Plan random = plan_of(PlanOrder::kRandom), blend = plan_of(PlanOrder::kBlend);
  // A random order finds the few prefixes of this job where the cache holds no long answers beside them.
  const double random_shared = offline::SharingOf(random, offline::StartOrder(random), kCacheTokens / 10).ratio();
  const double shared = offline::SharingOf(blend, offline::StartOrder(blend), kCacheTokens).ratio();
  EXPECT_GT(shared, 0.97 * optimal) << "the paper: 97 % of the optimum";
  EXPECT_LT(random_shared, shared);
}

TEST(StartOrder, StartsEveryPositionOnceFromTheEndsInwards) {
  const Mix mix(60, 300);
  const PrefixTree tree = PrefixTree::Build(SetOf(mix.job, 16));
  for (const PlanOrder order : {PlanOrder::kBlend, PlanOrder::kBlendDualScan, PlanOrder::kBalance, PlanOrder::kDfs}) {
    const Plan plan = Plan::Make(tree, Llama8bOnA100(), mix.outputs, {.order = order});
    const auto starts = offline::StartOrder(plan);
    int32_t left = 0, right = plan.size() - 1;
    for (const int32_t position : starts) {
      ASSERT_TRUE(position == left || position == right) << position << " between " << left << " and " << right;
      position == left ? ++left : --right;
      if (order == PlanOrder::kDfs) {
        ASSERT_EQ(right, plan.size() - 1);
      }
    }
    ASSERT_EQ(left, right + 1);
  }
}

// Steps until all answers have ended, if each of `sequences` takes the next request when it becomes free.
int64_t StepsOf(const Plan& plan, const std::vector<int32_t>& starts, size_t sequences) {
  std::multiset<int64_t> free_at;
  for (size_t i = 0; i < sequences; ++i) free_at.insert(0);
  int64_t last = 0;
  for (const int32_t position : starts) {
    const int64_t end = *free_at.begin() + plan.OutputAt(position);
    free_at.erase(free_at.begin());
    free_at.insert(end);
    last = std::max(last, end);
  }
  return last;
}

// A job little longer than its longest answers: these start at once, and none runs alone at the end.
TEST(StartOrder, LongAnswersDoNotRunOnAloneAtTheEnd) {
  constexpr size_t kSequences = 16;
  const TwoKinds job{.dense = 600, .heavy = 4, .dense_d = 64, .heavy_d = 2000};
  const Plan plan = job.Made();
  const offline::StartBalance balance(plan);
  const int64_t ideal = (600 * 64 + 4 * 2000) / static_cast<int64_t>(kSequences);
  const auto early = offline::StartOrder(plan, balance, 0, kSequences);
  EXPECT_GT(StepsOf(plan, offline::StartOrder(plan), kSequences), ideal * 14 / 10)
      << "otherwise the job proves nothing";
  EXPECT_LT(StepsOf(plan, early, kSequences), ideal * 11 / 10);
  EXPECT_EQ(std::set<int32_t>(early.begin(), early.end()).size(), early.size());
}

// In a long job long answers wait for their turn, until its end.
TEST(StartOrder, ALongJobIsStillBlended) {
  const TwoKinds job{.dense = 20'000, .heavy = 100, .dense_d = 64, .heavy_d = 2000};
  const Plan plan = job.Made();
  const offline::StartBalance balance(plan);
  const auto turns = offline::StartOrder(plan), early = offline::StartOrder(plan, balance, 0, 16);
  const auto same = std::mismatch(turns.begin(), turns.end(), early.begin()).first - turns.begin();
  EXPECT_GT(same, plan.size() * 8 / 10);
}

}  // namespace
}  // namespace tactus
