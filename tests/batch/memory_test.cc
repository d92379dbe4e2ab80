// What planning takes in bytes, counted at every allocation, against what PlannerMemory promises. Time does not matter.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "batch/allocated_bytes.h"
#include "batch/output_lengths.h"
#include "batch/plan.h"
#include "batch/plan_summary.h"
#include "batch/prompt_set.h"
#include "batch/shards.h"

#ifndef TACTUS_PLANNED_PROMPTS
#define TACTUS_PLANNED_PROMPTS 20000
#endif

namespace tactus {
namespace {

using batch::Plan;
using batch::PrefixTree;
using batch::PromptSet;

constexpr int32_t kPrompts = TACTUS_PLANNED_PROMPTS;

// From the keys to the shards, all of it. Returns the bytes at the peak beyond what was held before.
int64_t PeakOfPlanning(PromptSet* prompts, int64_t held_before) {
  const batch::BatchCostModel cost{.flops_per_token = 1.6e10,
                                   .attention_flops = 5e5,
                                   .kv_bytes_per_token = 131072,
                                   .flops_per_s = 312e12,
                                   .bytes_per_s = 2e12};
  PrefixTree tree = PrefixTree::Build(*prompts);
  const auto sample = batch::ChooseSample(tree, *prompts, {});
  EXPECT_GE(static_cast<int32_t>(sample.size()), kPrompts / 100);
  std::vector<int32_t> measured(static_cast<size_t>(prompts->size()), 0);
  for (const int32_t i : sample) measured[static_cast<size_t>(i)] = 1 + i % 100;
  const auto outputs = batch::EstimateOutputs(tree, *prompts, measured);
  const Plan plan = Plan::Make(&tree, cost, outputs, {});
  EXPECT_EQ(plan.size(), prompts->size());
  const auto places = plan.Places();
  EXPECT_EQ(places.size(), outputs.size());
  const auto summary = batch::Summarize(plan, {}, 500'000);
  EXPECT_GT(summary.planned_sharing, 0.9 * summary.optimal_sharing);
  EXPECT_TRUE(batch::CutShards(plan, 8).ok());
  return testing::PeakBytes() - held_before;
}

// Prompts of a thousand tokens as their keys, which is what a million of them must be planned from. Every tenth shares
// nothing; the others have one of 50 system prompts and, in part, a longer prefix.
void Fill(PromptSet* prompts) {
  Rng rng(3);
  std::vector<Hash128> keys(63);
  for (int32_t i = 0; i < kPrompts; ++i) {
    const auto system = static_cast<uint64_t>(rng.UniformInt(0, 49));
    const int64_t shared = i % 10 == 0 ? 0 : rng.UniformInt(4, 40);
    uint64_t hash = MixHash(1, i % 10 == 0 ? 1000 + static_cast<uint64_t>(i) : system);
    for (int64_t k = 0; k < 63; ++k) {
      if (k == shared) hash = MixHash(hash, 1 + static_cast<uint64_t>(i));
      hash = MixHash(hash, static_cast<uint64_t>(k));
      keys[static_cast<size_t>(k)].low = hash;
    }
    ASSERT_TRUE(prompts->AddKeys(keys, 1000 + static_cast<int32_t>(shared % 8), {}).ok()) << i;
  }
}

TEST(PlannerMemory, IsNotExceeded) {
  if (testing::PeakBytes() < 0) GTEST_SKIP() << "the sanitizer owns operator new";
  testing::ForgetPeakBytes();
  const int64_t before = testing::PeakBytes();
  PromptSet prompts;
  ASSERT_NO_FATAL_FAILURE(Fill(&prompts));
  EXPECT_FALSE(prompts.coarsened());
  EXPECT_EQ(prompts.key_tokens(), 16);
  const int64_t promised = batch::PlannerMemory(prompts.size(), prompts.total_prompt_tokens());
  const int64_t peak = PeakOfPlanning(&prompts, before);
  RecordProperty("peak_bytes_per_prompt", std::to_string(peak / kPrompts));
  RecordProperty("promised_bytes_per_prompt", std::to_string(promised / kPrompts));
  EXPECT_LE(peak, promised) << peak / kPrompts << " bytes per prompt";
  EXPECT_GE(peak, promised / 2) << "PlannerMemory promises much more than is needed";
}

// Half of that: coarser keys, and still a plan.
TEST(PlannerMemory, ALimitIsKeptWithCoarserKeys) {
  if (testing::PeakBytes() < 0) GTEST_SKIP() << "the sanitizer owns operator new";
  testing::ForgetPeakBytes();
  const int64_t before = testing::PeakBytes();
  const int64_t limit = batch::PlannerMemory(kPrompts, int64_t{1000} * kPrompts) * 6 / 10;
  PromptSet prompts(limit);
  ASSERT_NO_FATAL_FAILURE(Fill(&prompts));
  EXPECT_TRUE(prompts.coarsened());
  EXPECT_GT(prompts.key_tokens(), 16);
  const int64_t peak = PeakOfPlanning(&prompts, before);
  EXPECT_LE(peak, limit) << peak / kPrompts << " bytes per prompt";
}

}  // namespace
}  // namespace tactus
