// The paper's dual scanner: two pointers over a plan, an end's share of the KV memory by the densities at the pointers,
// caps, lending, victims, and steps in whole tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/sched/choices.h"
#include "core/sched/order_bed.h"
#include "core/sched/step_bed.h"
#include "core/sched/view_of.h"

namespace tactus::core::dual_scan_test {
namespace {

using testing::CheckBeforeAgainstWalk;
using testing::HarnessConfig;
using testing::StepBed;
using testing::ViewOf;

constexpr int32_t kJob = 1'000'000;  // the density of the job

// Only the scanner's shares limit starts: admission by prompts, and steps for all of them.
HarnessConfig Config(int64_t blocks = 150, const std::string& caps = "held") {
  HarnessConfig c;
  c.scheduler.preset = "blend-dual-scan";
  c.scheduler.admission = "prompt-fits";
  c.scheduler.limits.token_budget = 4096;
  *c.scheduler.limits.policy.Find<std::string>("dual-scan-caps") = caps;
  c.num_blocks = blocks;
  c.max_num_seqs = 100;
  c.prefix_caching = false;
  return c;
}

// The n-th request in the plan's order, from `end`, with its density and expected KV.
core::SequenceSpec Of(PlanEnd end, int32_t n, int32_t density, int32_t kv_tokens = 8, int32_t step_tokens = 0) {
  return {.max_output_tokens = 100, .planned = {n, kv_tokens, end, density, step_tokens}};
}

struct Started {
  int left = 0, right = 0, none = 0;
  bool operator==(const Started&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Started& s) {
  return out << s.left << " left, " << s.right << " right, " << s.none << " without an end";
}

Started StartsOf(StepBed* bed) {
  bed->Plan();
  Started started;
  for (const SequenceStart& start : bed->planned().starts) {
    const PlanEnd end = bed->table().columns().planned[start.slot].end;
    ++(end == PlanEnd::kLeft ? started.left : end == PlanEnd::kRight ? started.right : started.none);
  }
  return started;
}

// Figure 5: subtrees of densities 3.73 and 0.096 in a job of 1.27 get 19.3 and 40.7 of 60 GB. Here 193 and 407 of 600
// tokens, in prompts of 8.
TEST(DualScan, SharesMatchThePapersExample) {
  const auto dense = static_cast<int32_t>(3.73 / 1.27 * kJob), sparse = static_cast<int32_t>(0.096 / 1.27 * kJob);
  StepBed bed(Config());
  for (int i = 0; i < 60; ++i) {
    bed.Waiting(8, Of(PlanEnd::kLeft, 2 * i, dense));
    bed.Waiting(8, Of(PlanEnd::kRight, 2 * i + 1, sparse));
  }
  EXPECT_EQ(StartsOf(&bed), (Started{24, 50}));
}

TEST(DualScan, ACapLimitsHeldOrExpectedTokens) {
  for (const char* caps : {"held", "expected"}) {
    StepBed bed(Config(100, caps));  // 400 tokens, 200 for each end
    // The left end's two hold 40 tokens each now, and 60 on average; the right end holds none.
    for (int i = 0; i < 2; ++i) bed.Decoding(8, 32, Of(PlanEnd::kLeft, i, 2 * kJob, 60));
    for (int i = 2; i < 30; ++i) bed.Waiting(8, Of(PlanEnd::kLeft, i, 2 * kJob, 10));
    for (int i = 30; i < 60; ++i) bed.Waiting(8, Of(PlanEnd::kRight, i, 0, 40));
    const bool held = std::string(caps) == "held";
    EXPECT_EQ(StartsOf(&bed), (held ? Started{15, 25} : Started{8, 5})) << caps << ": 120 of 8 or 80 of 10 tokens";
  }
}

TEST(DualScan, SharesFollowThePointers) {
  const auto started = [](int32_t first_left, int32_t left, int32_t right) {
    StepBed bed(Config(100));
    bed.Waiting(8, Of(PlanEnd::kLeft, 0, first_left));
    for (int i = 1; i < 60; ++i) bed.Waiting(8, Of(PlanEnd::kLeft, i, left));
    for (int i = 60; i < 120; ++i) bed.Waiting(8, Of(PlanEnd::kRight, i, right));
    return StartsOf(&bed);
  };
  EXPECT_EQ(started(2 * kJob, 2 * kJob, 0), (Started{25, 25}));
  EXPECT_EQ(started(4 * kJob, 4 * kJob, 0), (Started{12, 37})) << "100 tokens of 400";
  EXPECT_EQ(started(4 * kJob, 2 * kJob, 0), (Started{25, 25})) << "the pointer has moved to the less dense";
  EXPECT_EQ(started(2 * kJob, kJob, 0).right, 0) << "requests as dense as the job need no others";
  EXPECT_EQ(started(kJob / 2, kJob / 2, kJob / 4).right, 0) << "a share below 0 is 0";
}

TEST(DualScan, EachEndGoesFromItsOutsideInwards) {
  StepBed bed(Config(100));
  std::vector<SlotId> left, right;
  for (const int n : {4, 0, 2}) left.push_back(bed.Waiting(40, Of(PlanEnd::kLeft, n, 2 * kJob)));
  for (const int n : {3, 1, 5}) right.push_back(bed.Waiting(40, Of(PlanEnd::kRight, n, 0)));
  bed.Plan();
  std::vector<SlotId> slots;
  for (const SequenceStart& start : bed.planned().starts) slots.push_back(start.slot);
  EXPECT_EQ(slots, (std::vector<SlotId>{left[1], right[1], left[2], right[0], left[0], right[2]}))
      << "the emptier end first, each in the order of the plan";
}

TEST(DualScan, AnIdleEndLendsItsShare) {
  for (const PlanEnd end : {PlanEnd::kLeft, PlanEnd::kRight}) {
    StepBed bed(Config(100));
    for (int i = 0; i < 60; ++i) bed.Waiting(8, Of(end, i, end == PlanEnd::kLeft ? 2 * kJob : 0));
    const Started started = StartsOf(&bed);
    EXPECT_EQ(started.left + started.right, 50) << "all 400 tokens are one end's";
  }
}

TEST(DualScan, NoRequestStartsBeyondItsEndsShareWhileAnyRuns) {
  // 400 tokens; the left end's share is 100, of which it holds 88, the right end's 300, of which it holds 280.
  const auto started = [](int32_t left_prompt, int32_t right_prompt) {
    StepBed bed(Config(100));
    for (int i = 0; i < 2; ++i) bed.Prefilling(44, 43, Of(PlanEnd::kLeft, i, 4 * kJob));
    for (int i = 2; i < 6; ++i) bed.Prefilling(70, 69, Of(PlanEnd::kRight, i, 0));
    bed.Waiting(left_prompt, Of(PlanEnd::kLeft, 6, 4 * kJob));
    bed.Waiting(right_prompt, Of(PlanEnd::kRight, 7, 0));
    return StartsOf(&bed);
  };
  EXPECT_EQ(started(13, 21), (Started{}));
  EXPECT_EQ(started(12, 21), (Started{1, 0}));
  EXPECT_EQ(started(13, 20), (Started{0, 1}));
}

TEST(DualScan, AnEndThatHoldsNothingStartsOne) {
  StepBed bed(Config(30));  // 120 tokens, of which the left end's share is 30
  bed.Decoding(8, 30, Of(PlanEnd::kRight, 0, 0));
  for (int i = 1; i < 3; ++i) bed.Waiting(40, Of(PlanEnd::kLeft, i, 4 * kJob));
  for (int i = 3; i < 5; ++i) bed.Waiting(90, Of(PlanEnd::kRight, i, 0));
  EXPECT_EQ(StartsOf(&bed), (Started{1, 0}));
}

TEST(DualScan, RequestsWithoutAnEndGoFirstAndUnderNoShare) {
  StepBed bed(Config(100));
  for (int i = 0; i < 40; ++i) bed.Waiting(8, Of(PlanEnd::kLeft, i, 2 * kJob));
  for (int i = 40; i < 80; ++i) bed.Waiting(8, Of(PlanEnd::kRight, i, 0));
  for (int i = 0; i < 10; ++i) bed.Waiting(8, {.max_output_tokens = 100});
  EXPECT_EQ(StartsOf(&bed), (Started{20, 20, 10}));
}

TEST(DualScan, ARetractedSequenceIsTheFirstOfItsEnd) {
  StepBed bed(Config(100));
  const SlotId last = bed.Decoding(8, 8, Of(PlanEnd::kRight, 9, 0));
  for (int i = 0; i < 9; ++i) bed.Waiting(8, Of(PlanEnd::kRight, i, 0));
  bed.Waiting(8, Of(PlanEnd::kLeft, 10, 2 * kJob));
  bed.Lose(last);
  bed.Plan();
  const auto& starts = bed.planned().starts;
  const auto first = std::find_if(starts.begin(), starts.end(), [&](const SequenceStart& start) {
    return bed.table().columns().planned[start.slot].end == PlanEnd::kRight;
  });
  ASSERT_NE(first, starts.end());
  EXPECT_EQ(first->slot, last);
}

TEST(DualScan, BeforeAgreesWithTheWalk) {
  CheckBeforeAgainstWalk("blend-dual-scan", MakeDualScanOrder);
}

// No block is free, and each decode needs one.
TEST(OwnEnd, RetractsTheLastOfTheSameEnd) {
  StepBed bed(Config(16));
  std::vector<SlotId> slots;
  for (int i = 0; i < 4; ++i) {
    slots.push_back(bed.Decoding(8, 9, Of(i < 2 ? PlanEnd::kLeft : PlanEnd::kRight, i, kJob)));
  }
  bed.Plan();
  EXPECT_EQ(bed.planned().preempts, std::vector<SlotId>{slots[1]}) << "its own end's, although slot 3 came later";
}

TEST(OwnEnd, TheOnlySequenceOfItsEndLosesItsOwnKv) {
  StepBed bed(Config(12));
  const SlotId alone = bed.Decoding(8, 9, {.max_output_tokens = 100});
  bed.Decoding(8, 9, Of(PlanEnd::kLeft, 0, kJob));
  bed.Decoding(8, 9, Of(PlanEnd::kLeft, 1, kJob));
  bed.Plan();
  EXPECT_EQ(bed.planned().preempts.size(), 1u);
  EXPECT_EQ(bed.planned().preempts[0], alone) << "the only one of its end loses its own KV";
}

TEST(OwnEnd, SequencesWithoutAnEndTakeFromEachOther) {
  StepBed bed(Config(16));
  std::vector<SlotId> slots;
  for (int i = 0; i < 4; ++i) {
    slots.push_back(
        bed.Decoding(8, 9, i < 2 ? core::SequenceSpec{.max_output_tokens = 100} : Of(PlanEnd::kLeft, i, kJob)));
  }
  bed.Plan();
  EXPECT_EQ(bed.planned().preempts, std::vector<SlotId>{slots[1]}) << "slot 3, which came last, has an end";
}

// Victim is also called for waiting sequences, whose end may have none running, or none without a share of the step.
TEST(OwnEnd, IfTheEndHasNoneLeftTheLastOfAllIsPreempted) {
  StepBed bed(Config(16));
  const SlotId left = bed.Decoding(8, 1, Of(PlanEnd::kLeft, 0, kJob));
  const SlotId older = bed.Waiting(8, Of(PlanEnd::kRight, 1, kJob));
  const SlotId last = bed.Waiting(8, Of(PlanEnd::kRight, 2, kJob));
  bed.StandAt(last, 8);
  bed.StandAt(older, 8);  // admitted last, and arrived before the other one
  const SlotId without = bed.Waiting(8, {.max_output_tokens = 100});
  const SlotId of_left = bed.Waiting(8, Of(PlanEnd::kLeft, 3, kJob));

  const StepView view = ViewOf(&bed.table());
  StepPlan plan;
  PlanBuilder& builder = bed.builder();
  builder.Begin(view, {4096, 4096}, {100, 100}, &plan);
  const auto order = MakeDualScanOrder(testing::Limits(nullptr, nullptr));
  const auto rule = MakeOwnEndRecompute(testing::Limits(nullptr, nullptr));
  const auto victim = [&](SlotId needy) { return rule->Victim(view, builder, *order, needy); };
  EXPECT_EQ(victim(without), last) << "no sequence without an end runs";
  EXPECT_EQ(victim(of_left), left);
  EXPECT_EQ(builder.AddRunning(left, 1, false), AddResult::kAdded);
  EXPECT_EQ(victim(of_left), last) << "the left end's only one has its share";
  EXPECT_EQ(builder.AddRunning(last, 1, false), AddResult::kAdded);
  EXPECT_EQ(victim(without), older);
  EXPECT_EQ(builder.AddRunning(older, 1, false), AddResult::kAdded);
  EXPECT_EQ(victim(without), kNoSlot) << "all that run have their share";
}

// A queue of one sequence, whose plan has steps of the given size.
core::SequenceTable Wanting(int32_t step_tokens) {
  core::SequenceTable t(40);
  core::SequenceSpec spec = Of(PlanEnd::kLeft, 0, kJob, 8, step_tokens);
  spec.prompt_tokens = 8;
  t.Add(spec, 0);
  return t;
}

std::vector<int64_t> Sizes(Budget* budget, core::SequenceTable* t, int steps) {
  std::vector<int64_t> sizes;
  for (int step = 0; step < steps; ++step) sizes.push_back(budget->Next(ViewOf(t, step)).tokens);
  return sizes;
}

TEST(WholeTiles, AlternatesAroundTheTargetSize) {
  const auto budget = MakeWholeTiles(testing::Limits(nullptr, nullptr));
  core::SequenceTable t(40);
  EXPECT_EQ(Sizes(budget.get(), &t, 3), (std::vector<int64_t>{512, 512, 512})) << "no plan";
  for (const int32_t wanted : {804, 640, 129, 2047}) {
    core::SequenceTable planned = Wanting(wanted);
    const std::vector<int64_t> sizes = Sizes(budget.get(), &planned, 128);
    for (const int64_t size : sizes) {
      EXPECT_EQ(size % 128, 0) << wanted;
      EXPECT_LT(std::abs(size - wanted), 128) << wanted;
    }
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 128 * wanted) << "on average the wanted size";
  }
  for (const auto& [wanted, size] : {std::pair{3, 128}, std::pair{100'000, 2048}}) {
    core::SequenceTable planned = Wanting(wanted);
    EXPECT_EQ(Sizes(budget.get(), &planned, 1), std::vector<int64_t>{size});
  }
}

TEST(WholeTiles, TokenBudgetSetsTheSize) {
  SchedulerLimits limits = testing::Limits(nullptr, nullptr);
  limits.token_budget = 300;
  core::SequenceTable planned = Wanting(804);
  EXPECT_EQ(Sizes(MakeWholeTiles(limits).get(), &planned, 2), (std::vector<int64_t>{300, 300}));
}

}  // namespace
}  // namespace tactus::core::dual_scan_test
