// Which sequences start, and which give way, when KV or places are short: one plan each, on hand-made views.
#include <gtest/gtest.h>

#include "core/sched/known_lengths.h"
#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::HarnessConfig;
using testing::KnownLengths;
using testing::PresetConfig;
using testing::StepBed;

// --- a step that preempted ---

// Two decodes of 8 computed positions fill four blocks of four, and each needs a fifth: the younger loses its two
// blocks. One of them is left over and would fit the waiting prompt of one token: it must not take what was just freed,
// or the next step preempts again.
TEST(Room, NoPromptStartsInAStepWhoseDecodePreempted) {
  for (const char* composition : {"stall-free", "running-first", "decode-maximal", "whole-prompt-hybrid"}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 64);
    c.scheduler.composition = composition;
    c.num_blocks = 4;
    c.max_model_len = 16;
    StepBed bed(c);
    bed.Decoding(7, 2, {.max_output_tokens = 9});
    bed.Decoding(7, 2, {.max_output_tokens = 9});
    bed.Waiting(1, {.max_output_tokens = 9});
    EXPECT_EQ(bed.Plan(), "!1 0:8+1*") << composition;
  }
}

// With enough blocks the same prompt is admitted, so it was the preemption that kept it out.
TEST(Room, APromptStartsInAStepWithoutPreemption) {
  for (const char* composition :
       {"stall-free", "running-first", "decode-maximal", "exact-fill", "whole-prompt-hybrid"}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 64);
    c.scheduler.composition = composition;
    c.num_blocks = 8;
    c.max_model_len = 16;
    StepBed bed(c);
    bed.Decoding(7, 2, {.max_output_tokens = 9});
    bed.Decoding(7, 2, {.max_output_tokens = 9});
    bed.Waiting(1, {.max_output_tokens = 9});
    EXPECT_EQ(bed.Plan(), "0:8+1* 1:8+1* 2:0+1*") << composition;
  }
}

// A prompt that continues may preempt too, after the decodes: here two half-done prompts, of which the older needs a
// block.
TEST(Room, NoPromptStartsInAStepWhosePromptPreempted) {
  for (const char* composition : {"stall-free", "decode-maximal"}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 64);
    c.scheduler.composition = composition;
    c.num_blocks = 4;
    c.max_model_len = 16;
    StepBed bed(c);
    bed.Prefilling(9, 8);
    bed.Prefilling(9, 8);
    bed.Waiting(1);
    EXPECT_EQ(bed.Plan(), "!1 0:8+1*") << composition;
  }
}

// A sequence that is short of KV and is itself the order's last loses its own KV, and no other does.
TEST(Room, TheOrdersLastLosesItsOwnKv) {
  HarnessConfig c = PresetConfig("sarathi-serve", 64);
  c.num_blocks = 5;
  c.max_model_len = 16;
  StepBed bed(c);
  bed.Decoding(9, 2);  // 10 positions: three blocks, room for two more
  bed.Decoding(7, 2);  // 8 positions: two full blocks
  EXPECT_EQ(bed.Plan(), "!1 0:10+1*");
}

// The queue's first does not fit, the second would: it still waits behind the first.
TEST(Room, NoPromptPassesTheFirstThatDoesNotFit) {
  for (const char* composition :
       {"stall-free", "running-first", "decode-maximal", "exact-fill", "whole-prompt-hybrid"}) {
    HarnessConfig c = PresetConfig("sarathi-serve", 64);
    c.scheduler.composition = composition;
    c.num_blocks = 4;
    c.max_model_len = 16;
    StepBed bed(c);
    bed.Decoding(5, 1);
    bed.Waiting(9);  // three blocks; two are free
    bed.Waiting(1);
    EXPECT_EQ(bed.Plan(), "0:5+1*") << composition;
  }
}

// A batch of a group also ends at the first that does not fit.
TEST(Room, ABatchEndsWithTheFirstThatDoesNotFit) {
  KnownLengths predictor({5});
  HarnessConfig c = PresetConfig("pia");
  c.predictor = &predictor;
  c.num_blocks = 4;
  c.max_model_len = 16;
  StepBed bed(c);
  bed.Waiting(8);
  bed.Waiting(9);
  bed.Waiting(1);
  EXPECT_EQ(bed.Plan(), "0:0+8*");
}

// --- prompts that a failed step left half done ---

// They continue before anything starts, whole if prompts are whole: of a budget of 16 the first leaves 5, which is not
// all of the second.
TEST(Room, HalfDonePromptsContinueWhole) {
  for (const char* composition : {"prefill-first", "whole-prompt-hybrid", "request-level", "length-grouped"}) {
    HarnessConfig c = PresetConfig("vllm-v0");
    c.scheduler.composition = composition;
    c.max_model_len = 16;
    StepBed bed(c);
    bed.Prefilling(12, 1);
    bed.Prefilling(12, 2);
    bed.Waiting(6);
    EXPECT_EQ(bed.Plan(), "0:1+11*") << composition;
  }
}

// Orca at its best computes one whole prompt beside the decodes, and the other in the next step.
TEST(Room, OnePromptHybridTakesOneWholePrompt) {
  HarnessConfig c = PresetConfig("orca-best");
  StepBed bed(c);
  bed.Decoding(4, 2);
  bed.Waiting(12);
  bed.Waiting(6);
  EXPECT_EQ(bed.Plan(), "0:5+1* 1:0+12*");
}

// Sarathi computes one prompt's chunk per step, whatever else is half done or waits.
TEST(Room, DecodeMaximalTakesOneChunk) {
  StepBed bed(PresetConfig("sarathi", 64));
  bed.Prefilling(10, 4);
  bed.Prefilling(10, 4);
  bed.Waiting(3);
  EXPECT_EQ(bed.Plan(), "0:4+6*");
  EXPECT_EQ(bed.Plan(), "0:10+1* 1:4+6*");
  EXPECT_EQ(bed.Plan(), "0:11+1* 1:10+1* 2:0+3*");
}

// --- room for newcomers, which take the place of running sequences that they outrank ---

// Running sequences have priority 1 unless a test sets another, newcomers 0.
HarnessConfig Preemptive() {
  HarnessConfig c = PresetConfig("orca");
  c.scheduler.order = "priority";
  c.scheduler.preemption = "proactive-swap";
  c.swap_blocks = 64;
  return c;
}
SlotId Lower(StepBed* bed) {
  return bed->Decoding(4, 3, {.priority = 1});
}

// One newcomer, two that would give way, and only a place is missing: one of them is preempted, the order's last.
TEST(Room, ShortOfAPlaceOnlyOneGivesWay) {
  HarnessConfig c = Preemptive();
  c.max_num_seqs = 2;
  StepBed bed(c);
  Lower(&bed);
  Lower(&bed);
  bed.Waiting(4);
  EXPECT_EQ(bed.Plan(), "!1 0:6+1* 2:0+4* out2");
}

// Among two of equal priority the one that was preempted before goes first in the queue, and is spared here, although
// it is younger.
TEST(Room, AmongEqualRanksTheQueuesLastGivesWay) {
  HarnessConfig c = Preemptive();
  c.max_num_seqs = 2;
  StepBed bed(c);
  Lower(&bed);
  const SlotId again = bed.Preempted(4, 3, {.priority = 1});
  bed.StandAt(again, 7);
  bed.Waiting(4);
  EXPECT_EQ(bed.Plan(), "!0 1:7+1* 2:0+4* out2");
}

// Two newcomers: each needs a place.
TEST(Room, TwoNewcomersNeedTwoPlaces) {
  HarnessConfig c = Preemptive();
  c.max_num_seqs = 3;
  StepBed bed(c);
  Lower(&bed);
  Lower(&bed);
  Lower(&bed);
  bed.Waiting(4);
  bed.Waiting(4);
  EXPECT_EQ(bed.Plan(), "!2 !1 0:6+1* 3:0+4* 4:0+4* out4");
}

// Four blocks of four, all held by two that give way, two blocks each. Each newcomer reserves two blocks (4 tokens and
// 4 of output): together they need all four, so both must be preempted.
TEST(Room, TwoNewcomersNeedTheirBlocksTogether) {
  HarnessConfig c = Preemptive();
  c.num_blocks = 4;
  c.max_model_len = 16;
  StepBed bed(c);
  Lower(&bed);
  Lower(&bed);
  bed.Waiting(4, {.max_output_tokens = 4});
  bed.Waiting(4, {.max_output_tokens = 4});
  EXPECT_EQ(bed.Plan(), "!1 !0 2:0+4* 3:0+4* out4");
}

// The same with one newcomer: only the order's last is preempted.
TEST(Room, OneNewcomerTakesNoMoreThanItNeeds) {
  HarnessConfig c = Preemptive();
  c.num_blocks = 4;
  c.max_model_len = 16;
  StepBed bed(c);
  Lower(&bed);
  Lower(&bed);
  bed.Waiting(4, {.max_output_tokens = 4});
  EXPECT_EQ(bed.Plan(), "!1 0:6+1* 2:0+4* out2");
}

// No sequence is preempted for a newcomer that would not fit even if all were freed.
TEST(Room, NoSequenceGivesWayInVain) {
  HarnessConfig c = Preemptive();
  c.num_blocks = 4;
  c.max_model_len = 16;
  StepBed bed(c);
  Lower(&bed);
  bed.Decoding(4, 2);                        // the newcomer's priority: does not give way
  bed.Waiting(4, {.max_output_tokens = 8});  // three blocks; two could be freed
  EXPECT_EQ(bed.Plan(), "1:5+1* 0:6+1*");
}

// Free blocks count: one block is free and one is missing, so it takes a victim's and the free block together.
TEST(Room, FreeBlocksCountBesideTheVictims) {
  HarnessConfig c = Preemptive();
  c.num_blocks = 5;
  c.max_model_len = 20;
  StepBed bed(c);
  Lower(&bed);
  Lower(&bed);
  bed.Waiting(4, {.max_output_tokens = 8});  // three blocks: the free one and the two of slot 1
  EXPECT_EQ(bed.Plan(), "!1 0:6+1* 2:0+4* out2");
}

// A victim whose token is still in a step in flight frees nothing in this plan: the newcomer waits one step.
TEST(Room, AVictimInFlightFreesNothingYet) {
  HarnessConfig c = Preemptive();
  c.max_num_seqs = 2;
  StepBed bed(c);
  Lower(&bed);
  const SlotId flying = Lower(&bed);
  bed.Waiting(4);
  bed.Fly(flying);
  EXPECT_EQ(bed.Plan(), "0:6+1*");
}

// A deferred victim is not replaced by another, for this newcomer or the next.
TEST(Room, ADeferredVictimEndsTheSearch) {
  HarnessConfig c = Preemptive();
  c.max_num_seqs = 3;
  StepBed bed(c);
  Lower(&bed);
  Lower(&bed);
  const SlotId flying = Lower(&bed);
  bed.Waiting(4);
  bed.Waiting(4);
  bed.Fly(flying);
  EXPECT_EQ(bed.Plan(), "0:6+1* 1:6+1*");
}

// What must stay free (two blocks of eight) is missing: the newcomer's two blocks are free, and one sequence still
// gives way.
TEST(Room, RoomIsMadeForTheWatermarkToo) {
  HarnessConfig c = Preemptive();
  c.scheduler.limits.watermark = 0.25;
  c.num_blocks = 8;
  c.max_model_len = 16;
  StepBed bed(c);
  for (int i = 0; i < 3; ++i) Lower(&bed);
  bed.Waiting(4, {.max_output_tokens = 4});
  EXPECT_EQ(bed.Plan(), "!2 0:6+1* 1:6+1* 3:0+4* out2");
}

TEST(Room, RoomIsMadeForTheWatermarkIfOneSequenceRuns) {
  HarnessConfig c = Preemptive();
  c.scheduler.limits.watermark = 0.25;
  c.num_blocks = 4;
  c.max_model_len = 16;
  StepBed bed(c);
  Lower(&bed);
  bed.Waiting(4, {.max_output_tokens = 4});  // its two blocks are free, but one must stay while another runs
  EXPECT_EQ(bed.Plan(), "!0 1:0+4* out2");
}

// Newcomers count as long as their prompts fit the budget: the second would need a place too, but its prompt does not
// fit this step, so only one running sequence gives way.
TEST(Room, NoSequenceGivesWayForAPromptBeyondTheBudget) {
  HarnessConfig c = Preemptive();
  c.scheduler.composition = "stall-free";
  c.scheduler.budget = "fixed";
  c.scheduler.limits.token_budget = 4;
  c.max_num_seqs = 3;
  StepBed bed(c);
  Lower(&bed);
  Lower(&bed);
  Lower(&bed);
  bed.Waiting(4);
  bed.Waiting(4);
  EXPECT_EQ(bed.Plan(), "!2 0:6+1* 1:6+1* 3:0+2 out2");
}

// --- trail: only before the share c of the victim's predicted output is done ---

// Predicted 10 tokens, c = 0.8: with 7 generated it gives way to a shorter newcomer, with 8 it does not.
TEST(Room, ASequenceThatHasDoneItsShareKeepsItsPlace) {
  for (const int32_t generated : {7, 8}) {
    KnownLengths predictor({10, 1});
    HarnessConfig c = PresetConfig("trail", 64);
    c.predictor = &predictor;
    c.max_num_seqs = 1;
    StepBed bed(c);
    bed.Waiting(4);
    EXPECT_EQ(bed.Plan(), "0:0+4*");
    for (int32_t i = 1; i < generated; ++i) bed.Plan();
    bed.Waiting(2);
    EXPECT_EQ(bed.Plan(), generated == 7 ? "!0 1:0+2*" : "0:11+1*") << generated;
  }
}

// With c = 0 no sequence gives way.
TEST(Room, TrailCOfZeroProtectsEverySequence) {
  KnownLengths predictor({10, 1});
  HarnessConfig c = PresetConfig("trail", 64);
  *c.scheduler.limits.policy.Find<double>("trail-c") = 0;
  c.predictor = &predictor;
  c.max_num_seqs = 1;
  StepBed bed(c);
  bed.Waiting(4);
  EXPECT_EQ(bed.Plan(), "0:0+4*");
  bed.Waiting(2);
  EXPECT_EQ(bed.Plan(), "0:4+1*");
}

}  // namespace
}  // namespace tactus::core
