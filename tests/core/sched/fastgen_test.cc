// Where FastGen plans differently from sarathi-serve: no sequence is preempted while any can continue, prompts are
// admitted against free blocks without a reservation, and preempted sequences go to the queue's end. Each case compares
// hand-made plans of both.
#include <gtest/gtest.h>

#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::Plans;
using testing::PresetConfig;
using testing::StepBed;

HarnessConfig Config(const std::string& preset, int64_t budget, int32_t blocks) {
  HarnessConfig c = PresetConfig(preset, budget);
  c.num_blocks = blocks;
  c.max_model_len = 16;
  return c;
}

Plans PlansOf(StepBed* bed, int steps) {
  Plans plans;
  for (int i = 0; i < steps; ++i) plans.push_back(bed->Plan((i + 1) * kMillisecond));
  return plans;
}

// Two decodes of two full blocks each, one block free: the older takes it. FastGen's other sits out and has its KV when
// the first has ended, two tokens later; sarathi-serve's loses it and computes nine tokens again.
TEST(FastGen, ADecodeShortOfABlockSitsOutAndKeepsItsKv) {
  for (const bool fastgen : {true, false}) {
    StepBed bed(Config(fastgen ? "fastgen" : "sarathi-serve", 64, 5));
    const SlotId first = bed.Decoding(7, 2, {.max_output_tokens = 4});
    bed.Decoding(7, 2, {.max_output_tokens = 9});
    EXPECT_EQ(PlansOf(&bed, 2), (fastgen ? Plans{"0:8+1*", "0:9+1*"} : Plans{"!1 0:8+1*", "0:9+1*"}));
    bed.kv().Release(first, -1);
    bed.table().Finish(first);
    bed.table().Compact();
    EXPECT_EQ(bed.Plan(), fastgen ? "1:8+1*" : "1:0+9*");
  }
}

// No block is free: all are stuck, so the youngest is preempted, and goes behind the prompt that waited at that time.
// The next step starts nothing: running sequences take what they need first.
TEST(FastGen, WhenAllAreStuckTheYoungestGoesToTheQueuesEnd) {
  for (const bool fastgen : {true, false}) {
    StepBed bed(Config(fastgen ? "fastgen" : "sarathi-serve", 64, 4));
    bed.Decoding(7, 2, {.max_output_tokens = 9});
    bed.Decoding(7, 2, {.max_output_tokens = 9});
    bed.Waiting(1);
    EXPECT_EQ(PlansOf(&bed, 3),
              (fastgen ? Plans{"!1", "0:8+1*", "0:9+1* 2:0+1*"} : Plans{"!1 0:8+1*", "0:9+1*", "0:10+1*"}));
  }
}

// A prompt of three blocks starts if three are free, and takes one. Before its next chunk a decode takes a block, so
// that the rest does not fit: it waits, and holds back the prompt behind it. With a reservation of all three, the
// decode finds no free block and preempts the prompt.
TEST(FastGen, AStartedPromptReservesNoBlocksForItsRest) {
  for (const bool fastgen : {true, false}) {
    StepBed bed(Config(fastgen ? "fastgen" : "sarathi-serve", 6, 6));
    bed.Decoding(4, 1);  // its next token needs a new block
    bed.Decoding(3, 1);  // the one after next does
    bed.Waiting(12);
    bed.Waiting(1);
    EXPECT_EQ(PlansOf(&bed, 2), (fastgen ? Plans{"0:4+1* 1:3+1* 2:0+4", "0:5+1* 1:4+1*"}
                                         : Plans{"0:4+1* 1:3+1* 2:0+4", "!2 0:5+1* 1:4+1*"}));
  }
}

// It does not start if less than the whole of it is free, although its first chunk would fit.
TEST(FastGen, APromptStartsOnlyIfFreeBlocksHoldAllOfIt) {
  for (const int32_t blocks : {4, 5}) {
    StepBed bed(Config("fastgen", 6, blocks));
    bed.Decoding(4, 1);
    bed.Waiting(9);  // three blocks
    EXPECT_EQ(bed.Plan(), blocks == 4 ? "0:4+1*" : "0:4+1* 1:0+5");
  }
}

// With enough KV the two plan alike.
TEST(FastGen, PlansAsSarathiServeWithEnoughKv) {
  Plans plans[2];
  for (const bool fastgen : {true, false}) {
    Harness h(PresetConfig(fastgen ? "fastgen" : "sarathi-serve", 8));
    for (const int32_t prompt : {5, 10, 3, 9, 20, 1}) AddRequest(&h, prompt, 6);
    ASSERT_EQ(h.Run(), "");
    plans[fastgen] = h.plans();
  }
  EXPECT_EQ(plans[0], plans[1]);
}

// The budget of DeepSpeed's configuration.
TEST(FastGen, StepsHave768TokensByDefault) {
  HarnessConfig c = PresetConfig("fastgen");
  c.num_blocks = 1000;
  c.max_model_len = 2000;
  StepBed bed(c);
  bed.Waiting(1000);
  EXPECT_EQ(bed.Plan(), "0:0+768");
}

}  // namespace
}  // namespace tactus::core
