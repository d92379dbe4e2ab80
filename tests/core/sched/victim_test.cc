// Which sequence loses its KV when memory is short: each preemption on a hand-made view. Blocks hold four tokens; the
// needy sequence is a decode whose next position needs a new block.
#include <gtest/gtest.h>

#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::HarnessConfig;
using testing::PresetConfig;
using testing::StepBed;

HarnessConfig Config(const char* preemption, const char* order, int64_t blocks) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.scheduler.order = order;
  c.scheduler.preemption = preemption;
  c.num_blocks = blocks;
  c.max_model_len = static_cast<int32_t>(4 * blocks);
  return c;
}

// Slot 0 needs a third block and none is free. Slots 1 and 2 hold one block each and have computed the same: of equal
// ones the last to arrive is preempted.
TEST(Victim, LeastRecomputeCostTakesTheLastOfEquals) {
  StepBed bed(Config("least-recompute-cost", "fcfs", 4));
  bed.Decoding(8, 1);
  bed.Decoding(3, 1);
  bed.Decoding(3, 1);
  EXPECT_EQ(bed.Plan(), "!2 0:8+1* 1:3+1*");
}

// The older of the two has less to compute again: it is preempted.
TEST(Victim, LeastRecomputeCostTakesTheShorter) {
  StepBed bed(Config("least-recompute-cost", "fcfs", 4));
  bed.Decoding(8, 1);
  bed.Decoding(2, 1);
  bed.Decoding(3, 1);
  EXPECT_EQ(bed.Plan(), "!1 0:8+1* 2:3+1*");
}

// Rank comes first: slot 2 is less important, whatever it costs; and a more important one is not preempted for being
// cheap.
TEST(Victim, LeastRecomputeCostGoesByRankFirst) {
  {
    StepBed bed(Config("least-recompute-cost", "priority", 4));
    bed.Decoding(8, 1, {.priority = 0});
    bed.Decoding(2, 1, {.priority = 1});
    bed.Decoding(3, 1, {.priority = 2});
    EXPECT_EQ(bed.Plan(), "!2 0:8+1* 1:2+1*");
  }
  StepBed bed(Config("least-recompute-cost", "priority", 4));
  bed.Decoding(8, 1, {.priority = 0});
  bed.Decoding(3, 1, {.priority = 2});
  bed.Decoding(2, 1, {.priority = 1});
  EXPECT_EQ(bed.Plan(), "!1 0:8+1* 2:2+1*");
}

// Slot 2 arrived last, slot 1 was admitted last.
TEST(Victim, LastAdmittedAndYoungestDiffer) {
  for (const char* preemption : {"last-admitted-recompute", "youngest-recompute", "swap"}) {
    StepBed bed(Config(preemption, "fcfs", 4));
    bed.Waiting(8);
    const SlotId older = bed.Waiting(3);
    const SlotId younger = bed.Waiting(3);
    bed.StandAt(0, 8);
    bed.StandAt(younger, 3);
    bed.StandAt(older, 3);
    EXPECT_EQ(bed.Plan(),
              std::string(preemption) == "last-admitted-recompute" ? "!1 0:8+1* 2:3+1*" : "!2 0:8+1* 1:3+1*")
        << preemption;
  }
}

// Among those of lowest rank: slot 1 by its priority, although slot 2 is younger and was admitted later.
TEST(Victim, TheLeastImportantIsPreemptedFirst) {
  for (const char* composition : {"stall-free", "ranked"}) {
    for (const char* preemption : {"last-admitted-recompute", "youngest-recompute", "swap", "by-rank-recompute"}) {
      HarnessConfig c = Config(preemption, "priority", 4);
      c.scheduler.composition = composition;
      StepBed bed(c);
      bed.Decoding(8, 1, {.priority = 0});
      bed.Decoding(3, 1, {.priority = 7});
      bed.Decoding(3, 1, {.priority = 3});
      EXPECT_EQ(bed.Plan(), "!1 0:8+1* 2:3+1*") << preemption << " " << composition;
    }
  }
}

// Two decodes need a block each, so two are preempted, the last first; then the third needs one, and only itself is
// left.
TEST(Victim, VictimsAreTakenFromTheLastOn) {
  for (const char* composition : {"stall-free", "ranked"}) {
    for (const char* preemption : {"youngest-recompute", "swap", "by-rank-recompute"}) {
      HarnessConfig c = Config(preemption, "priority", 8);
      c.scheduler.composition = composition;
      StepBed bed(c);
      bed.Decoding(8, 1, {.priority = 0});
      bed.Decoding(4, 1, {.priority = 3});
      bed.Decoding(8, 1, {.priority = 1});
      bed.Decoding(4, 1, {.priority = 5});
      bed.Decoding(8, 1, {.priority = 2});
      EXPECT_EQ(bed.Plan(), "!3 !1 !4 0:8+1* 2:8+1*") << preemption << " " << composition;
    }
  }
}

// With equal rank the younger; a sequence that has its share of the step already is spared.
TEST(Victim, WithEqualRankTheYoungestWithoutAShareIsPreempted) {
  for (const char* composition : {"stall-free", "ranked"}) {
    for (const char* preemption : {"youngest-recompute", "swap", "by-rank-recompute"}) {
      HarnessConfig c = Config(preemption, "priority", 4);
      c.scheduler.composition = composition;
      StepBed bed(c);
      bed.Decoding(3, 1, {.priority = 1});  // runs first
      bed.Decoding(8, 1, {.priority = 1});
      bed.Decoding(3, 1, {.priority = 1});
      EXPECT_EQ(bed.Plan(), "!2 0:3+1* 1:8+1*") << preemption << " " << composition;
    }
  }
}

// Only sequences with a share are left: the needy one loses its own KV.
TEST(Victim, TheNeedySequenceIsTheLastResort) {
  for (const char* preemption :
       {"youngest-recompute", "last-admitted-recompute", "least-recompute-cost", "swap", "by-rank-recompute"}) {
    StepBed bed(Config(preemption, "fcfs", 3));
    bed.Decoding(3, 1);
    bed.Decoding(8, 1);
    EXPECT_EQ(bed.Plan(), "!1 0:3+1*") << preemption;
  }
}

// Swap saves computed KV if host memory holds all of it; otherwise it is recomputed.
TEST(Victim, SwapSavesWhatFitsTheHost) {
  for (const int64_t swap_blocks : {1, 0}) {
    HarnessConfig c = Config("swap", "fcfs", 3);
    c.swap_blocks = swap_blocks;
    StepBed bed(c);
    bed.Decoding(8, 1);
    bed.Decoding(3, 1);
    EXPECT_EQ(bed.Plan(), swap_blocks == 1 ? "!1 0:8+1* out1" : "!1 0:8+1*");
  }
}

// The step in which a preempted sequence starts again records how long it was without KV, the longest of several; a
// first start records nothing.
TEST(Victim, TheLongestPreemptionIsRecorded) {
  StepBed bed(Config("youngest-recompute", "fcfs", 16));
  bed.Waiting(4, {.arrival_ns = 0});
  EXPECT_EQ(bed.Plan(9 * kSecond), "0:0+4*");
  EXPECT_EQ(bed.planned().longest_preemption_ns, 0) << "a first start is no preemption";
  const SlotId first = bed.Preempted(4, 1);  // both at 9 s
  const SlotId second = bed.Preempted(4, 1);
  bed.table().LoseKept(first);
  bed.table().LoseKept(second);
  EXPECT_EQ(bed.Plan(12 * kSecond), "0:4+1* 1:0+5* 2:0+5*");
  EXPECT_EQ(bed.planned().longest_preemption_ns, 3 * kSecond);
}

}  // namespace
}  // namespace tactus::core
