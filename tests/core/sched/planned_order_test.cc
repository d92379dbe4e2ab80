// Orders by a request's place in the plan of its job, and the shuffle that they are compared with.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "core/sched/choices.h"
#include "core/sched/order_bed.h"
#include "core/sched/step_bed.h"
#include "core/sched/view_of.h"

namespace tactus::core::planned_order_test {
namespace {

using testing::Arrival;
using testing::CheckAgainstSort;
using testing::CheckBeforeAgainstWalk;
using testing::HarnessConfig;
using testing::Key;
using testing::Limits;
using testing::Reference;
using testing::StepBed;
using testing::ViewOf;
using testing::Walk;

TEST(PlannedOrder, BeforeAgreesWithTheWalk) {
  CheckBeforeAgainstWalk("blend", MakePlannedOrder);
  CheckBeforeAgainstWalk("random", MakeRandomOrder);
}

TEST(PlannedOrder, GoesByThePlan) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {view.seq.preemptions[s] > 0 ? 0.0 : 1.0, static_cast<double>(view.seq.planned[s].position),
              Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakePlannedOrder, &reference);
}

TEST(PlannedOrder, RandomShufflesDifferentlyPerSeed) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      const uint64_t drawn = MixHash(MixHash(0, 0), static_cast<uint64_t>(view.seq.arrival_order[s]));
      return {view.seq.preemptions[s] > 0 ? 0.0 : 1.0, static_cast<double>(drawn), Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeRandomOrder, &reference);

  std::set<std::vector<SlotId>> shuffles;
  for (int64_t seed = 0; seed < 5; ++seed) {
    SchedulerLimits limits = Limits(nullptr, nullptr);
    *limits.policy.Find<int64_t>("random-seed") = seed;
    core::SequenceTable t(limits.slot_capacity);
    for (int i = 0; i < 20; ++i) t.Add({.prompt_tokens = 4, .max_output_tokens = 4}, 0);
    const auto order = MakeRandomOrder(limits);
    order->Rebuild(ViewOf(&t));
    const StepView view = ViewOf(&t);
    shuffles.insert(Walk(order.get(), view));
  }
  EXPECT_EQ(shuffles.size(), 5u);
}

// Blocks of 4 tokens: a prompt of 8 with an expected mean of 18 takes 5 of them, and at most the blocks of its limit.
TEST(PlannedMean, LeavesRoomForTheMeanLength) {
  HarnessConfig config;
  config.scheduler = {.preset = "sarathi-serve", .admission = "planned-mean"};
  config.num_blocks = 12;
  config.prefix_caching = false;
  const auto started = [&](int32_t kv_tokens, int32_t max_output_tokens) {
    StepBed bed(config);
    std::vector<SlotId> slots;
    for (int i = 0; i < 6; ++i) {
      slots.push_back(bed.Waiting(8, {.max_output_tokens = max_output_tokens, .planned = {i, kv_tokens}}));
    }
    bed.Plan();
    return std::count_if(slots.begin(), slots.end(), [&](SlotId s) { return bed.table().holds_kv(s); });
  };
  EXPECT_EQ(started(0, 32), 6) << "no plan: only the prompt";
  EXPECT_EQ(started(18, 32), 2);
  EXPECT_EQ(started(16, 32), 3);
  EXPECT_EQ(started(1000, 4), 4) << "it never holds more than 12";
}

// Four run, three blocks each. A start of two leaves a block for each of them, or it waits.
TEST(PlannedMean, LeavesABlockPerRunningSequence) {
  HarnessConfig config;
  config.scheduler = {.preset = "sarathi-serve", .admission = "planned-mean"};
  config.prefix_caching = false;
  for (const int32_t blocks : {17, 18}) {
    config.num_blocks = blocks;
    StepBed bed(config);
    for (int i = 0; i < 4; ++i) bed.Decoding(8, 2, {.max_output_tokens = 32, .planned = {i, 8}});
    const SlotId next = bed.Waiting(8, {.max_output_tokens = 32, .planned = {4, 8}});
    bed.Plan();
    EXPECT_EQ(bed.table().holds_kv(next), blocks == 18) << blocks << " blocks";
  }
}

// 20 of 40 blocks are free. A sequence of 8 tokens with an expected mean of 72 needs 18 of them, 2 now and 16 later. A
// running sequence 32 tokens beyond its mean will have ended by then; one as far below it needs them too.
TEST(PlannedMean, SequencesBeyondTheirMeanOffsetTheGrowthOfOthers) {
  HarnessConfig config;
  config.scheduler = {.preset = "sarathi-serve", .admission = "planned-mean"};
  config.num_blocks = 40;
  config.prefix_caching = false;
  const auto starts = [&](int32_t mean_of_first, int32_t mean_of_next) {
    StepBed bed(config);
    bed.Decoding(8, 71, {.max_output_tokens = 200, .planned = {0, mean_of_first}});
    const SlotId next = bed.Waiting(8, {.max_output_tokens = 200, .planned = {1, mean_of_next}});
    bed.Plan();
    return bed.table().holds_kv(next);
  };
  EXPECT_TRUE(starts(79, 72 + 8)) << "16 + 2 blocks of growth and a prompt of 2 in 20";
  EXPECT_FALSE(starts(79, 72 + 12));
  EXPECT_TRUE(starts(79 - 32, 72 + 32)) << "the first counts as 8 blocks less";
  EXPECT_FALSE(starts(79 + 32, 72)) << "the first needs 8 more";
  EXPECT_TRUE(starts(79 + 32, 72 - 24));
}

}  // namespace
}  // namespace tactus::core::planned_order_test
