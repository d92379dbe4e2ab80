// From both ends: the split of the memory, and what a blended job looks like while it runs.
#include <gtest/gtest.h>

#include <cmath>
#include <queue>

#include "batch/jobs.h"
#include "batch/plan.h"
#include "batch/sharing.h"
#include "batch/start_order.h"
#include "sched/dual_scanner.h"

namespace tactus {
namespace {

using batch::Plan;
using batch::PlanOrder;
using batch::PrefixTree;
using sched::DualScanner;
using sched::MemorySplit;
using sched::ScanSide;
using sched::SplitMemory;
using testing::Job;
using testing::Llama8bOnA100;
using testing::SetOf;

// BlendServe, figure 5: Llama-3.1-8B on an A100-80GB with 20 GB for weights and buffers; nodes of 512/256 and 256/16384
// tokens; the job's density is 1.27.
TEST(MemorySplit, ThePapersExample) {
  const batch::BatchCostModel cost = Llama8bOnA100();
  const auto density = [&](int64_t p, int64_t d) { return cost.ComputeSeconds(p, d) / cost.MemorySeconds(p, d); };
  EXPECT_NEAR(density(512, 256), 3.73, 0.02 * 3.73);
  EXPECT_NEAR(density(256, 16384), 0.096, 0.02 * 0.096);
  const MemorySplit split = SplitMemory(60, density(512, 256), density(256, 16384), 1.27);
  EXPECT_NEAR(split.left, 19.3, 0.4);
  EXPECT_NEAR(split.right, 40.7, 0.4);
}

TEST(MemorySplit, StaysInTheMemory) {
  EXPECT_EQ(SplitMemory(60, 3, 2, 1).left, 0) << "both ends are too dense: all for the less dense one";
  EXPECT_EQ(SplitMemory(60, 0.5, 0.2, 1).right, 0) << "neither is dense enough: all for the denser one";
  EXPECT_EQ(SplitMemory(60, 2, 2, 1).left, 30) << "equally dense: halves";
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const double right = rng.Uniform(), left = right + rng.Uniform() * 3, target = rng.Uniform() * 2;
    const MemorySplit split = SplitMemory(7, left, right, target);
    ASSERT_GE(split.left, 0);
    ASSERT_GE(split.right, 0);
    ASSERT_DOUBLE_EQ(split.left + split.right, 7);
    if (target <= right || target >= left) continue;
    ASSERT_NEAR(split.left * left + split.right * right, 7 * target, 1e-9);
  }
}

PlannedPlace PlaceOf(float density, int32_t kv_tokens) {
  return {.position = 0, .density = density, .kv_tokens = kv_tokens};
}

TEST(DualScanner, EachEndGetsItsPart) {
  const PlannedPlace left = PlaceOf(3, 100), right = PlaceOf(0.5f, 100);  // parts: 0.2 and 0.8
  DualScanner scanner;
  int lefts = 0;
  for (int i = 0; i < 100; ++i) {
    const ScanSide side = scanner.Next(left, right);
    lefts += side == ScanSide::kLeft;
    scanner.Hold(side == ScanSide::kLeft ? left : right);
  }
  EXPECT_EQ(lefts, 20) << "of 100 alike, a fifth come from the left";
  // What ends on one side is replaced on that side.
  scanner.Release(right);
  EXPECT_EQ(scanner.Next(left, right), ScanSide::kRight);
  scanner.Hold(right);
  scanner.Release(left);
  EXPECT_EQ(scanner.Next(left, right), ScanSide::kLeft);
}

// The pointer moves to denser requests: the split is computed anew, and the left has too much now.
TEST(DualScanner, ASplitIsThatOfThePointersNow) {
  const PlannedPlace right = PlaceOf(0.5f, 100);
  DualScanner scanner;
  for (int i = 0; i < 20; ++i) scanner.Hold(PlaceOf(3, 100));
  for (int i = 0; i < 80; ++i) scanner.Hold(right);
  EXPECT_EQ(scanner.Next(PlaceOf(3, 10), right), ScanSide::kLeft) << "a fifth is its part, and it has that";
  EXPECT_EQ(scanner.Next(PlaceOf(5, 10), right), ScanSide::kRight) << "a ninth is its part";
}

TEST(DualScanner, TheNearerEndGetsAllWhereBothAreOnOneSideOfTheMean) {
  DualScanner scanner;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(scanner.Next(PlaceOf(3, 100), PlaceOf(2, 100)), ScanSide::kRight) << i;
    scanner.Hold(PlaceOf(2, 100));
  }
  DualScanner other;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(other.Next(PlaceOf(0.9f, 100), PlaceOf(0.2f, 100)), ScanSide::kLeft) << i;
    other.Hold(PlaceOf(0.9f, 100));
  }
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

// How far what runs is from the job's density: the mean over the starts of |log2(held density)|, the first and the last
// tenth left out, where memory fills and drains.
double Unevenness(const Plan& plan, const std::vector<int32_t>& starts, int64_t kv_tokens) {
  struct Running {
    int64_t ends_at;
    double compute, read, held;
    bool operator<(const Running& o) const { return ends_at > o.ends_at; }
  };
  std::priority_queue<Running> running;
  double compute = 0, read = 0, held = 0, sum = 0;
  int64_t now = 0;
  int counted = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int32_t at = starts[i];
    const double reads = plan.PromptAt(at) + plan.OutputAt(at) / 2.0, holds = reads - plan.SharedWithPrevious(at);
    while (!running.empty() && held + holds > static_cast<double>(kv_tokens)) {
      now = running.top().ends_at;
      compute -= running.top().compute;
      read -= running.top().read;
      held -= running.top().held;
      running.pop();
    }
    // Its memory time per step is what it reads, its compute time so many times that.
    const double density = plan.ComputeSecondsAt(at) / plan.MemorySecondsAt(at);
    running.push({now + plan.OutputAt(at), reads * density, reads, holds});
    compute += reads * density;
    read += reads;
    held += holds;
    if (i < starts.size() / 10 || i > starts.size() * 9 / 10) continue;
    sum += std::abs(std::log2(compute / read / plan.density()));
    ++counted;
  }
  return sum / counted;
}

TEST(Blend, RunsAtTheJobsDensityAndSharesAsMuchAsDepthFirst) {
  const Mix mix(400, 6000);
  const PrefixTree tree = PrefixTree::Build(SetOf(mix.job, 16));
  constexpr int64_t kKvTokens = 200'000;
  const auto plan_of = [&](PlanOrder order) {
    return Plan::Make(tree, Llama8bOnA100(), mix.outputs, {.order = order});
  };
  const Plan dfs = plan_of(PlanOrder::kDfs);
  const auto dfs_starts = batch::StartOrder(dfs, kKvTokens);
  const double dfs_uneven = Unevenness(dfs, dfs_starts, kKvTokens);
  const double optimal = batch::OptimalSharing(dfs).ratio();
  const Plan random = plan_of(PlanOrder::kRandom);
  const double random_shared = batch::SharingOf(random, batch::StartOrder(random, kKvTokens), kKvTokens / 50).ratio();

  const Plan blend = plan_of(PlanOrder::kBlend);
  const auto starts = batch::StartOrder(blend, kKvTokens);
  const double uneven = Unevenness(blend, starts, kKvTokens);
  const double shared = batch::SharingOf(blend, starts, kKvTokens / 50).ratio();
  EXPECT_LT(uneven, dfs_uneven / 3) << "depth first runs one task after the other";
  EXPECT_GT(shared, 0.97 * optimal) << "the paper: 97 % of the optimum";
  EXPECT_LT(random_shared, shared);
}

TEST(StartOrder, TakesEveryPositionOnceFromTheEndsInwards) {
  const Mix mix(60, 300);
  const PrefixTree tree = PrefixTree::Build(SetOf(mix.job, 16));
  for (const PlanOrder order : {PlanOrder::kBlend, PlanOrder::kBalance, PlanOrder::kDfs}) {
    const Plan plan = Plan::Make(tree, Llama8bOnA100(), mix.outputs, {.order = order});
    for (const int64_t kv_tokens : {int64_t{1}, int64_t{30'000}, int64_t{1} << 40}) {
      const auto starts = batch::StartOrder(plan, kv_tokens);
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
}

}  // namespace
}  // namespace tactus
