// The budget that --tbt-slo chooses, with step times simple enough to compute it by hand.
#include <gtest/gtest.h>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

// 10 ms + 0.1 ms per token + 1 us per KV token of decodes + the cost of a prompt chunk's context, over all stages.
class KnownSteps final : public StepTimeModel {
 public:
  KnownSteps(int32_t stages, int32_t tile) : stages_(stages), tile_(tile) {}
  DurationNs StepTimeNs(const StepShape& s) const override {
    return 10 * kMillisecond + 100 * kMicrosecond * s.tokens() + kMicrosecond * s.decode_context_tokens;
  }
  int32_t stages() const override { return stages_; }
  int32_t tile_tokens() const override { return tile_; }

 private:
  const int32_t stages_, tile_;
};

SchedulerLimits Limits(const StepTimeModel* model, DurationNs slo_ns) {
  SchedulerLimits l;
  l.max_num_seqs = 64;
  l.max_model_len = 4096;
  l.slot_capacity = 100;
  l.blocks_total = 100000;
  l.step_time = model;
  l.pipeline_steps = model != nullptr ? model->stages() : 1;
  l.tbt_slo_ns = slo_ns;
  return l;
}

int64_t BudgetOf(const SchedulerLimits& limits, std::string* why = nullptr) {
  const auto budget = MakeProfileBudget(limits);
  ChoiceTraits traits;
  budget->Describe(&traits);
  if (why != nullptr) *why = budget->Why();
  return traits.max_tokens;
}

TEST(ProfileBudget, BudgetIsTheLargestMultipleWithinTheObjective) {
  const KnownSteps model(1, 1);
  // 32 decodes over 1,024 tokens each read KV for 32.8 ms: 100 ms leave (100 - 10 - 32.768) / 0.1 = 572.3 tokens.
  std::string why;
  EXPECT_EQ(BudgetOf(Limits(&model, 100 * kMillisecond), &why), 568);
  EXPECT_NE(why.find("568"), std::string::npos) << why;
  // A multiple of the tile, if the model has one.
  const KnownSteps tiled(1, 128);
  EXPECT_EQ(BudgetOf(Limits(&tiled, 100 * kMillisecond)), 512);
  // Exactly at the limit is allowed: 10 + 32.768 + 57.2.
  EXPECT_EQ(BudgetOf(Limits(&model, 10 * kMillisecond + 32768 * kMicrosecond + 576 * 100 * kMicrosecond)), 576);
  EXPECT_EQ(BudgetOf(Limits(&model, 10 * kMillisecond + 32768 * kMicrosecond + 576 * 100 * kMicrosecond - 1)), 568);
}

// If every step keeps the objective: the largest multiple within the context limit, which is itself tested.
TEST(ProfileBudget, BudgetIsAtMostTheContextLimit) {
  const KnownSteps model(1, 1);
  EXPECT_EQ(BudgetOf(Limits(&model, 1000 * kSecond)), 4096);
  const KnownSteps tiled(1, 128);
  SchedulerLimits limits = Limits(&tiled, 1000 * kSecond);
  limits.max_model_len = 1000;
  EXPECT_EQ(BudgetOf(limits), 896);  // 7 x 128
}

TEST(ProfileBudget, BudgetKeepsHeadroom) {
  const KnownSteps model(4, 1);
  // 0.9 x 100 ms: (90 - 42.768) / 0.1 = 472.3.
  EXPECT_EQ(BudgetOf(Limits(&model, 100 * kMillisecond)), 472);
  SchedulerLimits half = Limits(&model, 100 * kMillisecond);
  *half.policy.Find<double>("tbt-headroom") = 0.5;
  EXPECT_EQ(BudgetOf(half), 72);  // (50 - 42.768) / 0.1 = 72.3
}

TEST(ProfileBudget, BudgetCountsOnlyPossibleDecodes) {
  const KnownSteps model(1, 1);
  SchedulerLimits few = Limits(&model, 100 * kMillisecond);
  few.max_num_seqs = 4;  // 4.1 ms of KV: (90 - 4.096) / 0.1 = 859
  EXPECT_EQ(BudgetOf(few), 856);
  SchedulerLimits tight = Limits(&model, 100 * kMillisecond);
  tight.blocks_total = 66;  // 1,056 tokens over 33 sequences: 32 each, 1.0 ms
  EXPECT_EQ(BudgetOf(tight), 888);
}

TEST(ProfileBudget, BudgetNamesItsReason) {
  const KnownSteps model(1, 1);
  std::string why;
  EXPECT_EQ(BudgetOf(Limits(&model, 5 * kMillisecond), &why), 8);
  EXPECT_NE(why.find("no step keeps"), std::string::npos);
  SchedulerLimits given = Limits(&model, 100 * kMillisecond);
  given.token_budget = 77;
  EXPECT_EQ(BudgetOf(given, &why), 77);
  EXPECT_NE(why.find("--token-budget"), std::string::npos);
  EXPECT_EQ(BudgetOf(Limits(&model, 0), &why), 512);
  EXPECT_NE(why.find("no --tbt-slo"), std::string::npos);
  EXPECT_EQ(BudgetOf(Limits(nullptr, 100 * kMillisecond), &why), 512);
  EXPECT_NE(why.find("tactus profile"), std::string::npos);
}

}  // namespace
}  // namespace tactus::core
