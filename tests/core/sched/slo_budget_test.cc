// AccelGen's pivot and its step budget, against examples computed by hand.
#include <gtest/gtest.h>

#include "core/kv/kv_cache.h"
#include "core/sched/choices.h"
#include "core/sched/plan.h"
#include "core/sched/slack_bed.h"

namespace tactus::core {
namespace {

TEST(Pivot, IsTheFirstStepSizeWithin3PercentOfTheBestThroughput) {
  FlatThenLinear model;
  model.base_ns = 10'000;  // rate = t / (10 + t) per us: 0.9980 at 8192 - 2.7 % below is 0.9718, at t = 344
  SchedulerLimits limits = Limits();
  limits.step_time = &model;
  limits.max_model_len = 8192;
  EXPECT_EQ(FindPivot(limits).tokens, 320);  // 320 / 330 = 0.9697 >= 0.97 * 0.99878 = 0.96882 > 256 / 266 = 0.9624
  *limits.policy.Find<int64_t>("accelgen-pivot") = 1000;
  EXPECT_EQ(FindPivot(limits).tokens, 1000);
  EXPECT_EQ(FindPivot(limits).step_ns, 1'010'000);
}

struct BudgetCase {
  BudgetCase() {
    model.token_ns = 100'000;
    *limits.policy.Find<int64_t>("accelgen-pivot") = 512;  // S_pf = 512 tokens in T_pf = 51.2 ms
    limits.step_time = &model;
  }
  int64_t Tokens(TimeNs now_ns = 0) {
    auto budget = MakeSloBudget(limits);
    auto order = MakeSlackOrder(limits);
    const StepView view = bed.View(now_ns);
    order->Rebuild(view);
    KvCache kv({.num_blocks = 1, .block_size = 16, .max_slots = 1, .max_blocks_per_slot = 1});  // nothing is cached
    return budget->NextFor(view, order.get(), PlanBuilder(limits, &kv)).tokens;
  }
  FlatThenLinear model;
  SchedulerLimits limits = Limits();
  Bed bed;
};

TEST(SloBudget, TheTightestTbtDecides) {
  BudgetCase c;
  c.bed.Compute(c.bed.Wait(10, {0, 100 * kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 1000);  // 512 * 100 / 51.2
  c.bed.Compute(c.bed.Wait(10, {0, 25 * kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 250);
  c.bed.Compute(c.bed.Wait(10, {}), 10);  // reading speed: not the tightest
  EXPECT_EQ(c.Tokens(), 250);
}

// The equation allows 512 * 100 / 51.2 = 1,000 tokens, and ignores contexts. Two decodes over 30 and 20 tokens read 5
// ms of KV: (100 - 5) / 0.1 = 950 tokens keep the objective.
TEST(SloBudget, TheDecodesContextsTakeTheirTime) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.context_ns = 100'000;
  c.bed.Compute(c.bed.Wait(29, {0, 100 * kMs, 0}), 29);
  c.bed.Compute(c.bed.Wait(19, {0, 400 * kMs, 0}), 19);
  EXPECT_EQ(c.Tokens(), 950);
  *c.limits.policy.Find<std::string>("accelgen-model") = "off";  // as published
  EXPECT_EQ(c.Tokens(), 1000);
}

// So does the chunk's context, the longest of the half-done prompts': 40 tokens, 4 ms; and the decode's own 10, 1 ms.
TEST(SloBudget, TheContextBehindTheChunkTakesItsTime) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.context_ns = 100'000;
  c.bed.Compute(c.bed.Wait(9, {0, 100 * kMs, 0}), 9);
  c.bed.Compute(c.bed.Wait(90, {9000 * kMs, 0, 0}), 40);
  c.bed.Compute(c.bed.Wait(90, {9000 * kMs, 0, 0}), 20);
  EXPECT_EQ(c.Tokens(), 950);
}

// And the logit rows: one for each decode and one for the chunk, 1 ms each.
TEST(SloBudget, RowsOfLogitsTakeTheirTime) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.row_ns = kMs;  // the pivot's own row counts too: 52.2 ms
  c.bed.Compute(c.bed.Wait(9, {0, 100 * kMs, 0}), 9);
  EXPECT_EQ(c.Tokens(), 980);
}

// Two decodes behind 30 tokens each read 0.6 ms, the least step takes 0.1 ms a token: 3.8 ms for 32 of them. A gap of 3
// ms cannot be kept, so it is ignored: the next shortest gap decides, 60 ms. 512 * 60 / 51.2 = 600 tokens by the
// equation, 594 by the model.
TEST(SloBudget, AGapThatNoStepKeepsIsIgnored) {
  BudgetCase c;
  c.model.tile = 32;
  c.model.context_ns = 10'000;
  c.bed.Compute(c.bed.Wait(29, {0, 3 * kMs, 0}), 29);
  c.bed.Compute(c.bed.Wait(29, {0, 60 * kMs, 0}), 29);
  const int64_t tokens = c.Tokens();
  EXPECT_LE(tokens, 594) << "60 ms are kept";
  EXPECT_GT(tokens, 594 - 32) << "to a tile of 32 tokens";
  *c.limits.policy.Find<std::string>("accelgen-model") = "off";
  EXPECT_EQ(c.Tokens(), 32) << "as published the tightest gap decides: 512 * 3 / 51.2 tokens, and no less than a tile";
}

// 10 ms per context token: no step keeps 100 ms, and nothing else limits the size.
TEST(SloBudget, IfNoStepKeepsAnyGapTheStepIsTheLargest) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.context_ns = 10 * kMs;
  c.bed.Compute(c.bed.Wait(29, {0, 100 * kMs, 0}), 29);
  EXPECT_EQ(c.Tokens(), 4096);
}

TEST(SloBudget, IsAtLeastTheTileAndTheDecodesAndAtMostTheCap) {
  BudgetCase c;
  *c.limits.policy.Find<std::string>("accelgen-model") = "off";  // else a gap that no step keeps is ignored
  c.bed.Compute(c.bed.Wait(10, {0, kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 64);  // a tile instead of 10
  for (int i = 0; i < 63; ++i) c.bed.Compute(c.bed.Wait(10, {0, kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 64);
  c.model.tile = 16;
  EXPECT_EQ(c.Tokens(), 64);  // the decodes
  BudgetCase loose;
  loose.bed.Compute(loose.bed.Wait(10, {0, 10'000 * kMs, 0}), 10);
  EXPECT_EQ(loose.Tokens(), 4096);
  loose.limits.token_budget = 700;
  EXPECT_EQ(loose.Tokens(), 700);
}

// T_max = 51.2 ms and L_c = 512 are those of the seed.
TEST(SloBudget, APromptAllowsItsRemainingTimePerChunk) {
  BudgetCase c;
  c.bed.Wait(1024, {400 * kMs, 0, 0});
  EXPECT_EQ(c.Tokens(), 2000);           // 400 / 2 ms
  EXPECT_EQ(c.Tokens(200 * kMs), 1000);  // (400 - 200) / 2 ms
  BudgetCase running;
  running.bed.Compute(running.bed.Wait(1024, {400 * kMs, 0, 0}), 512);
  EXPECT_EQ(running.Tokens(200 * kMs), 2000);  // one chunk left
}

// 512 tokens in three chunks make L_c (512 + 512) / 4 = 256: four chunks of 110 / 4 ms, less than the pivot's 51.2.
TEST(SloBudget, APromptLimitsStepsToNoLessThanThePivot) {
  BudgetCase c;
  c.bed.Step(51'200'000, 512, 3, 0);
  c.bed.Wait(1024, {400 * kMs, 0, 0});
  EXPECT_EQ(c.Tokens(290 * kMs), 512);
}

// 1,024 tokens take 102.4 ms at best. A prompt with less time left sets no limit, whether it waits or runs, and the
// step is as large as the others allow.
TEST(SloBudget, AMissedPromptDoesNotLimitSteps) {
  BudgetCase c;
  c.bed.Wait(1024, {400 * kMs, 0, 0});
  EXPECT_EQ(c.Tokens(297'600'000), 512) << "51.2 ms per chunk: just kept";
  EXPECT_EQ(c.Tokens(297'600'001), 4096);
  EXPECT_EQ(c.Tokens(400 * kMs), 4096) << "late";
  c.bed.Compute(c.bed.Wait(1536, {400 * kMs, 0, 0}), 512);
  EXPECT_EQ(c.Tokens(297'600'001), 4096) << "one that runs";
  c.bed.Compute(c.bed.Wait(10, {0, 100 * kMs, 0}, 300 * kMs), 10);
  EXPECT_EQ(c.Tokens(300 * kMs), 1000) << "the decode's objective counts as ever";
}

// Without a model a prompt limits steps until its objective has passed.
TEST(SloBudget, WithoutAModelALatePromptDoesNotLimitSteps) {
  BudgetCase c;
  c.limits.step_time = nullptr;
  c.bed.Step(10 * kMs, 200, 2, 0);  // 20 tokens per ms: the pivot takes 25.6 ms; L_c = 100
  c.bed.Wait(200, {200 * kMs, 0, 0});
  EXPECT_EQ(c.Tokens(100 * kMs), 1000);  // 100 / 2 ms
  EXPECT_EQ(c.Tokens(200 * kMs), 512);   // no less than the pivot
  EXPECT_EQ(c.Tokens(200 * kMs + 1), 4096);
}

// A gap of 50 ms with an objective of 25: from then on the decode limits steps to reading speed, like one without
// objectives.
TEST(SloBudget, AMissedDecodeLimitsStepsToReadingSpeed) {
  BudgetCase c;
  const SlotId tight = c.bed.Wait(10, {0, 25 * kMs, 0});
  c.bed.Compute(tight, 10);
  EXPECT_EQ(c.Tokens(0), 250);
  c.bed.Decode(tight);
  EXPECT_EQ(c.Tokens(25 * kMs), 250) << "the second token was in time";
  EXPECT_EQ(c.Tokens(75 * kMs), 250) << "the third is not there yet";
  c.bed.Decode(tight);
  EXPECT_EQ(c.Tokens(75 * kMs), 1875) << "187.5 ms";
  c.bed.Decode(tight);
  EXPECT_EQ(c.Tokens(76 * kMs), 1875) << "a token in time does not undo the miss";
  c.bed.Compute(c.bed.Wait(10, {0, 100 * kMs, 0}, 76 * kMs), 10);
  EXPECT_EQ(c.Tokens(76 * kMs), 1000) << "the others limit steps as before";
}

// The limit is its own objective if that is longer; a late first token counts as a miss, too.
TEST(SloBudget, ADecodeWithALateFirstTokenHasMissed) {
  for (const DurationNs tbt : {25 * kMs, 300 * kMs}) {
    BudgetCase c;
    c.bed.Compute(c.bed.Wait(10, {100 * kMs, tbt, 0}), 10);
    EXPECT_EQ(c.Tokens(100 * kMs + 1), tbt == 25 * kMs ? 1875 : 3000);
    BudgetCase in_time;
    in_time.bed.Compute(in_time.bed.Wait(10, {100 * kMs, tbt, 0}), 10);
    EXPECT_EQ(in_time.Tokens(100 * kMs), tbt == 25 * kMs ? 250 : 3000);
  }
}

// An overdue job limits steps to reading speed as well.
TEST(SloBudget, AnOverdueJobLimitsStepsToReadingSpeed) {
  BudgetCase c;
  c.bed.Compute(c.bed.Wait(512, {0, 0, 1000 * kMs}, 0, 4), 512);
  EXPECT_EQ(c.Tokens(1000 * kMs), 2000) << "its share of 148.8 ms and a step of 51.2";
  EXPECT_EQ(c.Tokens(1000 * kMs + 1), 1875);
}

TEST(SloBudget, AJobAllowsItsShareAndOneStep) {
  BudgetCase c;
  c.bed.Wait(512, {0, 0, 1000 * kMs}, 0, 4);
  // T_e = 5 * 51.2 = 256; share = 744 / 5 = 148.8 ms, and one step of 51.2.
  EXPECT_EQ(c.Tokens(), 2000);
  EXPECT_EQ(c.Tokens(100 * kMs), 1000);
  EXPECT_EQ(c.Tokens(900 * kMs), 512);
}

// Without a model: the pivot until a step has been measured, then the fastest step of the window sets the pivot's time.
TEST(SloBudget, WithoutAModelThePivotTimeIsMeasured) {
  BudgetCase c;
  c.limits.step_time = nullptr;
  c.bed.Compute(c.bed.Wait(10, {0, 50 * kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 512);
  c.bed.Step(100 * kMs, 1000, 2, 0);  // 10 tokens per ms
  EXPECT_EQ(c.Tokens(), 500);
  c.bed.Step(10 * kMs, 200, 2, 0);  // 20
  EXPECT_EQ(c.Tokens(), 1000);
  c.bed.Step(10 * kMs, 0, 0, 5);
  EXPECT_EQ(c.Tokens(), 1000);
}

}  // namespace
}  // namespace tactus::core
