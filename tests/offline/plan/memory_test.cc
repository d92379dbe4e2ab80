// The bytes that planning allocates, counted at every allocation, against PlannerMemory's bound. Time does not matter.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "offline/plan/allocated_bytes.h"
#include "offline/plan/job_feed.h"
#include "offline/plan/output_lengths.h"
#include "offline/plan/plan.h"
#include "offline/plan/plan_summary.h"
#include "offline/plan/prompt_set.h"
#include "offline/plan/shards.h"
#include "offline/plan/start_order.h"

#ifndef TACTUS_PLANNED_PROMPTS
#define TACTUS_PLANNED_PROMPTS 20000
#endif

namespace tactus {
namespace {

using offline::Plan;
using offline::PrefixTree;
using offline::PromptSet;

constexpr int32_t kPrompts = TACTUS_PLANNED_PROMPTS;

const offline::BatchCostModel kCost{.flops_per_token = 1.6e10,
                                    .attention_flops = 5e5,
                                    .kv_bytes_per_token = 131072,
                                    .flops_per_s = 312e12,
                                    .bytes_per_s = 2e12};

// Plans from the keys to the shards. Returns the peak bytes beyond those held before.
int64_t PeakOfPlanning(PromptSet* prompts, int64_t held_before) {
  PrefixTree tree = PrefixTree::Build(*prompts);
  const auto sample = offline::ChooseSample(tree, *prompts, {});
  EXPECT_GE(static_cast<int32_t>(sample.size()), kPrompts / 100);
  std::vector<int32_t> measured(static_cast<size_t>(prompts->size()), 0);
  for (const int32_t i : sample) measured[static_cast<size_t>(i)] = 1 + i % 100;
  const auto outputs = offline::EstimateOutputs(tree, *prompts, measured);
  EXPECT_TRUE(offline::AssignShards(tree, kCost, outputs, 8).ok());
  const Plan plan = Plan::Make(std::move(tree), kCost, outputs, {});
  EXPECT_EQ(plan.size(), prompts->size());
  EXPECT_EQ(offline::StartOrder(plan).size(), outputs.size());
  const auto summary = offline::Summarize(plan, {}, 500'000);
  EXPECT_GT(summary.planned_sharing, 0.9 * summary.optimal_sharing);
  return testing::PeakBytes() - held_before;
}

// Prompts of a thousand tokens, given as keys, from which a million of them must be planned.
enum class Shape : uint8_t {
  kTasks,   // one in ten shares nothing; the others share one of 50 system prompts and partly a longer prefix
  kBinary,  // two children wherever prompts diverge: the most inner nodes possible
};

void Fill(Shape shape, PromptSet* prompts) {
  constexpr int64_t kKeys = 63;
  Rng rng(3);
  std::vector<Hash128> keys(kKeys);
  for (int32_t i = 0; i < kPrompts; ++i) {
    const auto own = static_cast<uint64_t>(i);
    const auto system = static_cast<uint64_t>(rng.UniformInt(0, 49));
    const int64_t shared = i % 10 == 0 ? 0 : rng.UniformInt(4, 40);
    uint64_t hash = 1;
    for (int64_t k = 0; k < kKeys; ++k) {
      uint64_t block = k == 0 ? system : 1;
      if (shape == Shape::kBinary) {
        block = k < 20 ? own >> k & 1 : 1;
      } else if (k == shared) {
        block = 1000 + own;
      }
      hash = MixHash(hash, block);
      keys[static_cast<size_t>(k)].low = hash;
    }
    ASSERT_TRUE(prompts->AddKeys(keys, 1009, {}).ok()) << i;
  }
}

class PlannerMemory : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    if (testing::PeakBytes() < 0) GTEST_SKIP() << "the sanitizer owns operator new";
    testing::ForgetPeakBytes();
    before_ = testing::PeakBytes();
  }
  int64_t before_ = 0;
};

TEST_P(PlannerMemory, TheBoundIsNotExceeded) {
  PromptSet prompts;
  ASSERT_NO_FATAL_FAILURE(Fill(GetParam(), &prompts));
  EXPECT_FALSE(prompts.coarsened());
  EXPECT_EQ(prompts.key_tokens(), 16);
  const int64_t promised = offline::PlannerMemory(prompts.size(), prompts.total_prompt_tokens());
  const int64_t peak = PeakOfPlanning(&prompts, before_);
  RecordProperty("peak_bytes_per_prompt", std::to_string(peak / kPrompts));
  RecordProperty("promised_bytes_per_prompt", std::to_string(promised / kPrompts));
  EXPECT_LE(peak, promised) << peak / kPrompts << " bytes per prompt";
  EXPECT_GE(peak, promised * 6 / 10) << "PlannerMemory promises much more than is needed";
}

// A lower limit: coarser keys, and still a plan.
TEST_P(PlannerMemory, ALimitIsKeptWithCoarserKeys) {
  const int64_t limit = offline::PlannerMemory(kPrompts, int64_t{1009} * kPrompts) * 7 / 10;
  PromptSet prompts(limit);
  ASSERT_NO_FATAL_FAILURE(Fill(GetParam(), &prompts));
  EXPECT_TRUE(prompts.coarsened());
  EXPECT_GT(prompts.key_tokens(), 16);
  const int64_t peak = PeakOfPlanning(&prompts, before_);
  EXPECT_LE(peak, limit) << peak / kPrompts << " bytes per prompt";
}

// A feed that plans repeatedly while requests are handed out and end.
TEST_P(PlannerMemory, AFeedStaysWithinTheBound) {
  auto prompts = std::make_shared<PromptSet>();
  ASSERT_NO_FATAL_FAILURE(Fill(GetParam(), prompts.get()));
  const int64_t promised = offline::PlannerMemory(prompts->size(), prompts->total_prompt_tokens());
  PrefixTree tree = PrefixTree::Build(*prompts);
  prompts->DropKeys();
  offline::FeedOptions options;
  options.plan.kv_tokens = 500'000;
  options.plan.shared_reads = true;  // the option that needs the most memory
  offline::JobFeed feed(prompts, std::move(tree), kCost, options,
                        std::vector<int32_t>(static_cast<size_t>(kPrompts), offline::kToRun));
  int32_t started = 0;
  for (auto start = feed.Next(); start; start = feed.Next(), ++started)
    feed.OnDone(start->request, 1 + start->request % 10);
  EXPECT_EQ(started, kPrompts);
  EXPECT_EQ(feed.Summary({}).requests, kPrompts);
  const int64_t peak = testing::PeakBytes() - before_;
  EXPECT_LE(peak, promised) << peak / kPrompts << " bytes per prompt";
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlannerMemory, ::testing::Values(Shape::kTasks, Shape::kBinary),
                         [](const auto& shape) { return shape.param == Shape::kTasks ? "Tasks" : "Binary"; });

}  // namespace
}  // namespace tactus
