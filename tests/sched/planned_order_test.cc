// Orders that go by a request's place in the plan of its job, and the shuffle that they are compared with.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/hash.h"
#include "sched/choices.h"
#include "sched/dual_scanner.h"
#include "sched/order_bed.h"
#include "sched/step_bed.h"
#include "sched/view_of.h"

namespace tactus::sched {
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

TEST(PlannedOrder, BeforeSaysWhatTheWalkDoes) {
  CheckBeforeAgainstWalk("dfs", MakeDfsOrder);
  CheckBeforeAgainstWalk("random", MakeRandomOrder);
  CheckBeforeAgainstWalk("balance", MakeBalanceOrder);
  CheckBeforeAgainstWalk("blend", MakeBlendOrder);
}

TEST(PlannedOrder, DfsGoesByThePlan) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {view.seq.preemptions[s] > 0 ? 0.0 : 1.0, static_cast<double>(view.seq.planned[s].position),
              Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeDfsOrder, &reference);
}

TEST(PlannedOrder, RandomIsAnotherShuffleForEachSeed) {
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
    SequenceTable t(limits.slot_capacity);
    for (int i = 0; i < 20; ++i) t.Add({.prompt_tokens = 4, .max_output_tokens = 4}, 0);
    const auto order = MakeRandomOrder(limits);
    order->Rebuild(ViewOf(&t));
    const StepView view = ViewOf(&t);
    shuffles.insert(Walk(order.get(), view));
  }
  EXPECT_EQ(shuffles.size(), 5u);
}

// The preempted, then those without a place, then the row from both ends, told from the view as a whole.
struct BothEnds : Reference {
  bool by_density = false;
  std::map<SlotId, double> rank;

  void BeforeWalk(const StepView& view) override {
    std::vector<SlotId> first, row;
    for (const SlotId s : view.waiting) {
      (view.seq.preemptions[s] == 0 && view.seq.planned[s].position >= 0 ? row : first).push_back(s);
    }
    std::sort(first.begin(), first.end(), [&](SlotId a, SlotId b) { return FirstKey(view, a) < FirstKey(view, b); });
    std::sort(row.begin(), row.end(), [&](SlotId a, SlotId b) { return RowKey(view, a) < RowKey(view, b); });
    double left = 0, right = 0;
    const auto hold = [&](SlotId s) {
      const PlannedPlace& place = view.seq.planned[s];
      if (place.position >= 0) (place.density >= 1 ? left : right) += std::max(1, place.kv_tokens);
    };
    for (const SlotId s : view.running) {
      if (view.seq.HoldsKv(s)) hold(s);
    }
    rank.clear();
    const auto take = [&](SlotId s) {
      hold(s);
      const auto place = static_cast<double>(rank.size());
      rank[s] = place;
    };
    for (const SlotId s : first) take(s);
    for (size_t low = 0, high = row.size(); low < high;) {
      const PlannedPlace &a = view.seq.planned[row[low]], &b = view.seq.planned[row[high - 1]];
      const MemorySplit part = SplitMemory(1, a.density, b.density, 1);
      const double with_left = left + std::max(1, a.kv_tokens) / 2.0,
                   with_right = right + std::max(1, b.kv_tokens) / 2.0;
      take(with_left * part.right <= with_right * part.left ? row[low++] : row[--high]);
    }
  }
  Key KeyOf(const StepView&, SlotId s) const override { return {rank.at(s)}; }
  static Key FirstKey(const StepView& view, SlotId s) {
    return {view.seq.preemptions[s] > 0 ? 0.0 : 1.0, Arrival(view, s)};
  }
  Key RowKey(const StepView& view, SlotId s) const {
    const PlannedPlace& place = view.seq.planned[s];
    return {by_density ? -static_cast<double>(place.density) : place.position, Arrival(view, s)};
  }
};

TEST(PlannedOrder, BlendTakesFromBothEndsOfThePlan) {
  BothEnds reference;
  CheckAgainstSort(MakeBlendOrder, &reference);
}

TEST(PlannedOrder, BalanceTakesFromBothEndsOfTheDensities) {
  BothEnds reference;
  reference.by_density = true;
  CheckAgainstSort(MakeBalanceOrder, &reference);
}

// Steps of a scheduler: compute-heavy requests have a fifth of the places, whenever one becomes free.
TEST(PlannedOrder, BlendKeepsTheMixWhileRequestsComeAndGo) {
  HarnessConfig config;
  config.scheduler = {.preset = "sarathi-serve", .order = "blend"};
  config.scheduler.limits.token_budget = 512;
  config.max_num_seqs = 10;
  config.num_blocks = 400;
  StepBed bed(config);
  const auto add = [&](int32_t position, float density) {
    return bed.Waiting(8, {.max_output_tokens = 200, .planned = {position, density, 10}});
  };
  std::vector<SlotId> left, right;
  for (int32_t i = 0; i < 12; ++i) left.push_back(add(i, 3));
  for (int32_t i = 0; i < 12; ++i) right.push_back(add(100 - i, 0.5f));
  const auto running = [&](const std::vector<SlotId>& side) {
    return std::count_if(side.begin(), side.end(), [&](SlotId s) { return bed.table().holds_kv(s); });
  };
  bed.Plan();
  EXPECT_EQ(running(left), 2) << bed.planned().items.size() << " started";
  EXPECT_EQ(running(right), 8);
  EXPECT_TRUE(bed.table().holds_kv(left[0]) && bed.table().holds_kv(left[1])) << "from the left end";
  EXPECT_TRUE(bed.table().holds_kv(right[0])) << "from the right end";
  for (int32_t i = 0; i < 6; ++i) {
    bed.End(i % 2 == 0 ? left[static_cast<size_t>(i / 2)] : right[static_cast<size_t>(i / 2)]);
    bed.Plan();
    EXPECT_EQ(running(left), 2) << "after " << i + 1 << " have ended";
    EXPECT_EQ(running(right), 8);
  }
}

// Blocks of 4 tokens: a prompt of 8 that is expected to hold 18 on average takes 5 of them, and no more than it may.
TEST(PlannedMean, SetsAsideTheMean) {
  HarnessConfig config;
  config.scheduler = {.preset = "sarathi-serve", .admission = "planned-mean"};
  config.num_blocks = 12;
  config.prefix_caching = false;
  const auto started = [&](int32_t kv_tokens, int32_t max_output_tokens) {
    StepBed bed(config);
    std::vector<SlotId> slots;
    for (int i = 0; i < 6; ++i) {
      slots.push_back(bed.Waiting(8, {.max_output_tokens = max_output_tokens, .planned = {i, 1, kv_tokens}}));
    }
    bed.Plan();
    return std::count_if(slots.begin(), slots.end(), [&](SlotId s) { return bed.table().holds_kv(s); });
  };
  EXPECT_EQ(started(0, 32), 6) << "no plan: the prompt alone";
  EXPECT_EQ(started(18, 32), 2);
  EXPECT_EQ(started(16, 32), 3);
  EXPECT_EQ(started(1000, 4), 4) << "it never holds more than 12";
}

// Four run and take their third block. Of the seven that are left then a start of three leaves them one each; one of
// four would not.
TEST(PlannedMean, LeavesABlockForEachThatRuns) {
  HarnessConfig config;
  config.scheduler = {.preset = "sarathi-serve", .admission = "planned-mean"};
  config.num_blocks = 19;
  config.prefix_caching = false;
  for (const int32_t kv_tokens : {12, 16}) {
    StepBed bed(config);
    for (int i = 0; i < 4; ++i) {
      const SlotId slot = bed.Waiting(8, {.max_output_tokens = 32, .planned = {i, 1, 8}});
      bed.Plan();
      ASSERT_TRUE(bed.table().holds_kv(slot));
    }
    const SlotId next = bed.Waiting(8, {.max_output_tokens = 32, .planned = {4, 1, kv_tokens}});
    bed.Plan();
    EXPECT_EQ(bed.table().holds_kv(next), kv_tokens == 12) << kv_tokens;
  }
}

}  // namespace
}  // namespace tactus::sched
