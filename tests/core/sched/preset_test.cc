// The distinguishing rules of the later presets: exact plans of cases small enough to compute by hand, and the bounds
// on starvation in their presets.def rows. A line is one step; see LoggingExecutor.
#include <gtest/gtest.h>

#include <cmath>

#include "core/sched/known_lengths.h"
#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::KnownLengths;
using testing::Plans;
using testing::PresetConfig;
using testing::RequestOutput;
using testing::StepBed;

// --- sarathi ---

// C = 8: exactly one chunk per step, in what the decodes leave; the second prompt waits although it would fit.
TEST(Sarathi, OneChunkPerStepFillsWhatTheDecodesLeave) {
  Harness h(PresetConfig("sarathi", 8));
  AddRequest(&h, 3, 3);
  AddRequest(&h, 10, 2);
  AddRequest(&h, 4, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+3*", "0:3+1* 1:0+7", "0:4+1* 1:7+3*", "1:10+1* 2:0+4*", "2:4+1*"}));
}

TEST(Sarathi, NeverPreemptsBecauseTheLongestOutputIsReserved) {
  HarnessConfig c = PresetConfig("sarathi", 64);
  c.num_blocks = 8;
  c.max_model_len = 16;
  Harness h(c);
  for (int i = 0; i < 4; ++i) AddRequest(&h, 4, 9);  // 4 blocks each at the end: two fit at a time
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
  EXPECT_EQ(h.plans()[1], "0:4+1* 1:0+4*");
  EXPECT_EQ(h.plans()[2], "0:5+1* 1:4+1*");  // the third waits for memory that these two may still need
}

// --- chunked-only, hybrid-only (Sarathi-Serve, Table 4) ---

TEST(ChunkedOnly, ChunksAndDecodesTakeTurns) {
  Harness h(PresetConfig("chunked-only", 4));
  AddRequest(&h, 3, 4);
  AddRequest(&h, 9, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+3* 1:0+1", "0:3+1*", "1:1+4", "0:4+1*", "1:5+4*", "0:5+1* 1:9+1*"}));
}

TEST(HybridOnly, WholePromptsOfAnyLengthJoinDecodes) {
  HarnessConfig c = PresetConfig("hybrid-only", 4);  // the budget is ignored
  c.num_blocks = 10;
  c.max_model_len = 36;
  Harness h(c);
  AddRequest(&h, 3, 4);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 30, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+3*", "0:3+1* 1:0+30*", "0:4+1* 1:30+1*", "0:5+1*"}));
}

// --- s3 ---

// Predicted 4 (of at most 20: rounded up to 4), it generates 20: it outgrows 4, gets 8, outgrows that, and so on. Each
// time it is recomputed with its output so far, and the final answer is the same.
TEST(S3, AnOutgrownSequenceIsRequeuedWithALongerPrediction) {
  KnownLengths predictor({4});
  HarnessConfig c = PresetConfig("s3", 64);
  c.block_size = 1;
  c.num_blocks = 100;
  c.max_model_len = 64;
  c.predictor = &predictor;
  Harness h(c);
  const RequestHandle handle = AddRequest(&h, 6, 20);
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(h.kv().Stats().blocks_reserved + h.kv().Stats().blocks_in_use, 6 + 4);
  ASSERT_EQ(h.Run(), "");
  const RequestOutput& out = h.outputs()[handle];
  EXPECT_EQ(out.choices[0].tokens.size(), 20u);
  // 4, 8, 16, 20: three reservations were too small.
  EXPECT_EQ(h.scheduler().outgrown(), 3);
  EXPECT_EQ(out.done_event.preemptions, 3);
  // Each run starts with the prompt and all tokens generated before.
  Plans starts;
  for (const std::string& line : h.plans()) {
    if (line.rfind("0:0+", 0) == 0) starts.push_back(line);
  }
  EXPECT_EQ(starts, (Plans{"0:0+6*", "0:0+11*", "0:0+15*", "0:0+23*"}));
}

// A correct prediction admits as many as fit by prediction; max-length would admit one.
TEST(S3, ReservesThePredictionAndNotTheLimit) {
  for (const char* preset : {"s3", "no-preempt"}) {
    KnownLengths predictor({5});
    HarnessConfig c = PresetConfig(preset, 64);
    c.block_size = 1;
    c.num_blocks = 60;
    c.max_model_len = 60;
    c.predictor = &predictor;
    Harness h(c);
    for (int i = 0; i < 4; ++i) AddRequest(&h, 5, 50);
    ASSERT_EQ(h.Settle(), "");
    EXPECT_EQ(h.plans()[0], std::string(preset) == "s3" ? "0:0+5* 1:0+5* 2:0+5* 3:0+5*" : "0:0+5*");
  }
}

// --- pia ---

std::vector<SlotId> StartsOf(const std::string& line) {
  std::vector<SlotId> slots;
  for (size_t at = line.find(":0+"); at != std::string::npos; at = line.find(":0+", at + 1)) {
    const size_t begin = line.rfind(' ', at);
    slots.push_back(std::stoi(line.substr(begin == std::string::npos ? 0 : begin + 1)));
  }
  return slots;
}

// Six blocks, three requests with predictions of 3, 4 and 2 blocks: the longest and the shortest fill the memory, where
// first come, first served would leave half of it empty. A later request passes none of an earlier window, although two
// blocks are free for it.
TEST(S3, PacksTheMemoryByDecreasingLength) {
  for (const bool packs : {true, false}) {
    KnownLengths predictor({8, 12, 4, 4});
    HarnessConfig c = PresetConfig("s3", 64);
    if (!packs) c.scheduler.order = "fcfs";
    c.num_blocks = 6;
    c.max_model_len = 16;
    c.predictor = &predictor;
    StepBed bed(c);
    for (int i = 0; i < 3; ++i) bed.Waiting(4, {.max_output_tokens = 12});
    EXPECT_EQ(bed.Plan(), packs ? "1:0+4* 2:0+4*" : "0:0+4*");
    if (!packs) continue;
    bed.Waiting(4, {.max_output_tokens = 12});
    bed.kv().Release(2, -1);
    bed.table().Finish(2);
    bed.table().Compact();
    EXPECT_EQ(bed.Plan(), "1:4+1*");
    bed.kv().Release(1, -1);
    bed.table().Finish(1);
    bed.table().Compact();
    EXPECT_EQ(bed.Plan(), "0:0+4*");
    EXPECT_EQ(bed.Plan(), "0:4+1* 3:0+4*");
  }
}

using Batches = std::vector<std::vector<SlotId>>;

struct PiaKnobs {
  int64_t bin = 50, window = 256, batch = 16;
  bool variable = true, collect = true;
};
HarnessConfig PiaConfig(const PiaKnobs& knobs, KnownLengths* predictor) {
  HarnessConfig c = PresetConfig("pia");
  SchedulerLimits& limits = c.scheduler.limits;
  *limits.policy.Find<int64_t>("pia-bin") = knobs.bin;
  *limits.policy.Find<int64_t>("pia-window") = knobs.window;
  *limits.policy.Find<int64_t>("pia-batch") = knobs.batch;
  *limits.policy.Find<bool>("pia-variable-batches") = knobs.variable;
  *limits.policy.Find<bool>("pia-collect-failed") = knobs.collect;
  c.predictor = predictor;
  return c;
}
Batches BatchesOf(const Harness& h) {
  Batches batches;
  for (const std::string& plan : h.plans()) {
    if (!StartsOf(plan).empty()) batches.push_back(StartsOf(plan));
  }
  return batches;
}

// A window is sorted by predicted output and cut every two. A batch takes as long as its longest.
TEST(Pia, BatchesAreOfSimilarLengthsShorterOnesFirst) {
  const std::vector<int32_t> lengths = {25, 3, 27, 4};
  KnownLengths predictor(lengths);
  Harness h(PiaConfig({.batch = 2, .variable = false}, &predictor));
  for (const int32_t length : lengths) AddRequest(&h, 5, length);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(BatchesOf(h), (Batches{{1, 3}, {0, 2}}));
  EXPECT_EQ(h.plans()[4], "0:0+5* 2:0+5*");
}

// The bound in its presets.def row: a later request waits for the current window, and for earlier requests of the
// queue before its own window, however short it is.
TEST(Pia, AWindowIsDoneBeforeTheNext) {
  KnownLengths predictor({9, 30, 2, 2});
  Harness h(PiaConfig({.window = 2, .batch = 1, .variable = false}, &predictor));
  for (const int32_t length : {9, 30, 2}) AddRequest(&h, 5, length);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 5, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(BatchesOf(h), (Batches{{0}, {1}, {2}, {3}}));
}

// Variable batch sizes: 4 of the third bin of 10 tokens, 2 of the fourth. The rest of the third bin would be a batch of
// less than half its size and joins the fourth.
TEST(Pia, ShorterBatchesAreLargerAndARestJoinsTheNextBin) {
  const std::vector<int32_t> lengths = {40, 30, 29, 28, 27, 26};
  KnownLengths predictor(lengths);
  HarnessConfig c = PiaConfig({.bin = 10, .batch = 1}, &predictor);
  c.max_num_seqs = 8;
  Harness h(c);
  for (const int32_t length : lengths) AddRequest(&h, 5, length);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(BatchesOf(h), (Batches{{2, 3, 4, 5}, {0, 1}}));
}

// Failure collection: the second outlives the prediction of its batch, 2 tokens. It loses its KV and is computed again,
// with its output so far, after the batches of its window and before the next one. Without collection it continues
// alone.
TEST(Pia, ASequenceThatOutlivesItsBatchIsRecomputedAfterItsWindow) {
  for (const bool collect : {true, false}) {
    SCOPED_TRACE(collect);
    KnownLengths predictor({2, 2, 3, 1});
    Harness h(PiaConfig({.window = 3, .batch = 2, .variable = false, .collect = collect}, &predictor));
    AddRequest(&h, 5, 2);
    AddRequest(&h, 5, 4);
    AddRequest(&h, 5, 3);
    AddRequest(&h, 5, 1);
    ASSERT_EQ(h.Run(), "");
    const Plans with = {"0:0+5* 1:0+5*", "0:5+1* 1:5+1*", "2:0+5*", "2:5+1*", "2:6+1*", "1:0+7*", "1:7+1*", "3:0+5*"};
    const Plans without = {"0:0+5* 1:0+5*", "0:5+1* 1:5+1*", "1:6+1*", "1:7+1*",
                           "2:0+5*",        "2:5+1*",        "2:6+1*", "3:0+5*"};
    EXPECT_EQ(h.plans(), collect ? with : without);
    EXPECT_EQ(h.loop().Stats().recomputed_tokens, collect ? 6 : 0);
  }
}

// --- trail ---

struct TrailCase {
  double c;
  int64_t tokens_before;  // generated by the long one when the short one arrives
  bool gives_way;
};

// One place: a long sequence of 20 predicted tokens runs when one of 2 arrives. It gives way only before the share c is
// done.
TEST(Trail, ARunningSequenceGivesWayOnlyBeforeItsShareIsDone) {
  for (const TrailCase& t : {TrailCase{0.5, 3, true}, TrailCase{0.5, 9, true}, TrailCase{0.5, 10, false},
                             TrailCase{0.5, 15, false}, TrailCase{0, 1, false}, TrailCase{1, 17, true}}) {
    SCOPED_TRACE("c " + std::to_string(t.c) + " after " + std::to_string(t.tokens_before));
    KnownLengths predictor({20, 2});
    HarnessConfig c = PresetConfig("trail", 64);
    c.max_num_seqs = 1;
    *c.scheduler.limits.policy.Find<double>("trail-c") = t.c;
    c.predictor = &predictor;
    Harness h(c);
    const RequestHandle long_one = AddRequest(&h, 5, 20);
    ASSERT_EQ(h.Settle(), "");
    while (static_cast<int64_t>(h.outputs()[long_one].choices[0].tokens.size()) < t.tokens_before - 1) {
      ASSERT_TRUE(h.Advance());
      ASSERT_EQ(h.Settle(), "");
    }
    const RequestHandle short_one =
        AddRequest(&h, 5, 2);  // planned when the step in flight has sampled the last of tokens_before
    ASSERT_EQ(h.Run(), "");
    EXPECT_EQ(h.outputs()[long_one].done_event.preemptions, t.gives_way ? 1 : 0);
    EXPECT_EQ(h.outputs()[short_one].done_event.done_ns < h.outputs()[long_one].done_event.done_ns, t.gives_way);
    EXPECT_EQ(h.outputs()[long_one].choices[0].tokens.size(), 20u);
  }
}

// A sequence with twenty predicted tokens runs when one of fifteen arrives: with a margin of five that is not short
// enough. Two arrivals, one after the other, preempt it twice, or once if that is the limit.
TEST(Trail, AMarginAndACapSpareARunningSequence) {
  for (const int64_t margin : {4, 5}) {
    KnownLengths predictor({20, 15});
    HarnessConfig c = PresetConfig("trail", 64);
    c.max_num_seqs = 1;
    *c.scheduler.limits.policy.Find<int64_t>("trail-margin") = margin;
    c.predictor = &predictor;
    StepBed bed(c);
    bed.Prefilling(5, 1);
    bed.Waiting(5);
    EXPECT_EQ(bed.Plan(), margin == 4 ? "!0 1:0+5*" : "0:1+4*");
  }
  for (const int64_t most : {0, 1, 2}) {
    KnownLengths predictor({20, 2, 2});
    HarnessConfig c = PresetConfig("trail", 64);
    c.max_num_seqs = 1;
    *c.scheduler.limits.policy.Find<int64_t>("trail-most-preemptions") = most;
    c.predictor = &predictor;
    Harness h(c);
    const RequestHandle long_one = AddRequest(&h, 5, 20);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(h.Settle(), "");
      AddRequest(&h, 5, 2);
      for (int step = 0; step < 4; ++step) {  // it runs again
        ASSERT_TRUE(h.Advance());
        ASSERT_EQ(h.Settle(), "");
      }
    }
    ASSERT_EQ(h.Run(), "");
    EXPECT_EQ(h.outputs()[long_one].done_event.preemptions, most == 1 ? 1 : 2) << "at most " << most;
  }
}

// A longer sequence displaces none, and the queue is in order of predicted length.
TEST(Trail, TheShortestRemainingOutputGoesFirst) {
  KnownLengths predictor({10, 12, 4, 8});
  HarnessConfig c = PresetConfig("trail", 64);
  c.max_num_seqs = 1;
  c.predictor = &predictor;
  Harness h(c);
  AddRequest(&h, 5, 10);
  ASSERT_EQ(h.Settle(), "");
  for (int i = 0; i < 9; ++i) {  // 9 of 10 done: protected
    ASSERT_TRUE(h.Advance());
    ASSERT_EQ(h.Settle(), "");
  }
  AddRequest(&h, 5, 12);
  AddRequest(&h, 5, 4);
  AddRequest(&h, 5, 8);
  ASSERT_EQ(h.Run(), "");
  std::vector<SlotId> started;
  for (const std::string& line : h.plans()) {
    if (line.find(":0+5*") != std::string::npos) started.push_back(line[line.find(":0+5*") - 1] - '0');
  }
  EXPECT_EQ(started, (std::vector<SlotId>{0, 2, 3, 1}));
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
}

// In a shortage of memory the sequence with the most left is recomputed, not the youngest.
TEST(Trail, AShortageTakesKvFromTheMostOutputLeft) {
  KnownLengths predictor({30, 9});
  HarnessConfig c = PresetConfig("trail", 64);
  c.num_blocks = 6;
  c.max_model_len = 24;
  c.predictor = &predictor;
  Harness h(c);
  const RequestHandle long_one = AddRequest(&h, 7, 16), short_one = AddRequest(&h, 7, 9);
  ASSERT_EQ(h.Run(), "");
  EXPECT_GT(h.outputs()[long_one].done_event.preemptions, 0);
  EXPECT_EQ(h.outputs()[short_one].done_event.preemptions, 0);
}

// --- starvation: ltr states a bound, trail states none ---

// One place, an endless stream of short requests, one long one: steps until the long one starts; -1: not during the
// stream.
int64_t StepsUntilTheLongOneStarts(const std::string& preset, int64_t starvation_steps) {
  std::vector<int32_t> lengths(1, 2);
  lengths.push_back(100);
  for (int i = 0; i < 400; ++i) lengths.push_back(2);
  KnownLengths predictor(lengths);
  HarnessConfig c = PresetConfig(preset, 64);
  c.max_num_seqs = 1;
  *c.scheduler.limits.policy.Find<int64_t>("ltr-starvation-steps") = starvation_steps;
  c.predictor = &predictor;
  Harness h(c);
  AddRequest(&h, 5, 2);
  EXPECT_EQ(h.Settle(), "");
  const RequestHandle long_one = AddRequest(&h, 5, 100);
  const int64_t arrived = h.steps();
  for (int i = 0; i < 200; ++i) {
    AddRequest(&h, 5, 2);
    AddRequest(&h, 5, 2);
    for (int step = 0; step < 4; ++step) {
      if (h.outputs()[long_one].choices[0].tokens.size() > 0) return h.steps() - arrived;
      if (!h.Advance()) ADD_FAILURE() << "no sequence runs";
      EXPECT_EQ(h.Settle(), "");
    }
    EXPECT_GE(h.scheduler().config().limits.slot_capacity, 8);
  }
  return -1;
}

TEST(Ltr, ALongRequestStartsAfterTheThreshold) {
  for (const int64_t threshold : {10, 40, 100}) {
    const int64_t steps = StepsUntilTheLongOneStarts("ltr", threshold);
    EXPECT_GE(steps, threshold);
    EXPECT_LE(steps, threshold + 4) << "the request that runs at the threshold, and the long one's first step";
  }
  EXPECT_EQ(StepsUntilTheLongOneStarts("ltr", 1 << 30), -1) << "without the guard it would starve";
}

TEST(Trail, StatesNoBoundAndHasNone) {
  EXPECT_EQ(StepsUntilTheLongOneStarts("trail", 10), -1);
}

// --- ltr ---

HarnessConfig LtrConfig(KnownLengths* predictor) {
  HarnessConfig c = PresetConfig("ltr", 64);
  c.predictor = predictor;
  c.executor.step_base_ns = kMillisecond;
  c.executor.step_token_ns = 0;
  return c;
}

// One place. The shorter sequence takes it from the running one, which keeps its KV and continues afterwards.
TEST(Ltr, AShorterSequenceGoesFirstAndTheOtherKeepsItsKv) {
  KnownLengths predictor({20, 2});
  HarnessConfig c = LtrConfig(&predictor);
  c.max_num_seqs = 1;
  Harness h(c);
  AddRequest(&h, 5, 4);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 5, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+5*", "1:0+5*", "1:5+1*", "0:5+1*", "0:6+1*", "0:7+1*"}));
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
}

// The budget is filled in the same order: a shorter sequence's prompt before a longer one's decode.
TEST(Ltr, AShorterSequencesPromptGoesBeforeALongerOnesDecode) {
  KnownLengths predictor({20, 2});
  HarnessConfig c = LtrConfig(&predictor);
  c.scheduler.limits.token_budget = 4;
  Harness h(c);
  AddRequest(&h, 4, 4);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 6, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "1:0+4", "1:4+2* 0:4+1*", "1:6+1* 0:5+1*", "0:6+1*"}));
}

// Blocks of four. Two long sequences hold all six; a short prompt of two blocks takes those of the longest, no other's.
TEST(Ltr, AShortageTakesKvFromTheLongest) {
  KnownLengths predictor({20, 30, 2});
  HarnessConfig c = LtrConfig(&predictor);
  c.num_blocks = 6;
  c.max_model_len = 24;
  c.swap_blocks = 16;
  Harness h(c);
  AddRequest(&h, 9, 3);
  AddRequest(&h, 9, 3);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 5, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+9* 1:0+9*", "!1 2:0+5* 0:9+1* out3", "2:5+1* 0:10+1*", "1:9+1* in3", "1:10+1*"}));
  EXPECT_EQ(h.loop().Stats().recomputed_tokens, 0);
}

// One place, an endless stream of short requests, a threshold of 10 steps and a quantum of 3: once the long sequence
// was unserved for 10 steps it has three in a row, then none for another 10, although it holds KV all the time.
TEST(Ltr, APausedSequenceIsPromotedForAQuantum) {
  KnownLengths predictor({100, 2});
  HarnessConfig c = LtrConfig(&predictor);
  c.max_num_seqs = 1;
  *c.scheduler.limits.policy.Find<int64_t>("ltr-starvation-steps") = 10;
  *c.scheduler.limits.policy.Find<int64_t>("ltr-quantum-steps") = 3;
  Harness h(c);
  AddRequest(&h, 5, 20);
  ASSERT_EQ(h.Settle(), "");
  for (int i = 0; i < 40; ++i) {
    AddRequest(&h, 3, 1);
    ASSERT_TRUE(h.Advance());
    ASSERT_EQ(h.Settle(), "");
  }
  std::vector<size_t> served;
  for (size_t i = 0; i < h.plans().size(); ++i) {
    if (h.plans()[i].rfind("0:", 0) == 0) served.push_back(i);
  }
  EXPECT_EQ(served, (std::vector<size_t>{0, 11, 12, 13, 24, 25, 26, 37, 38, 39}));
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
}

// Two that starve beside the stream: the one unserved for longer is first, although the other is shorter.
TEST(Ltr, PromotedSequencesGoLongestUnservedFirst) {
  KnownLengths predictor({2, 100, 50, 2});
  HarnessConfig c = LtrConfig(&predictor);
  c.max_num_seqs = 1;
  *c.scheduler.limits.policy.Find<int64_t>("ltr-starvation-steps") = 10;
  Harness h(c);
  AddRequest(&h, 3, 1);
  ASSERT_EQ(h.Settle(), "");
  const RequestHandle longest = AddRequest(&h, 5, 1);
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  const RequestHandle long_one = AddRequest(&h, 5, 1);
  for (int i = 0; i < 30; ++i) {
    AddRequest(&h, 3, 1);
    AddRequest(&h, 3, 1);
    ASSERT_TRUE(h.Advance());
    ASSERT_EQ(h.Settle(), "");
  }
  ASSERT_EQ(h.Run(), "");
  EXPECT_LT(h.outputs()[longest].done_event.done_ns, h.outputs()[long_one].done_event.done_ns);
  EXPECT_LE(h.outputs()[long_one].done_event.done_ns, 16 * kMillisecond);
}

// Memory for one of two, whose prompts take six steps of four tokens; a threshold of five steps, a quantum of three. A
// promotion lasts until three new tokens are computed, however often the prompt is computed again.
TEST(Ltr, RecomputationUsesUpNoQuantum) {
  KnownLengths predictor({9});
  HarnessConfig c = LtrConfig(&predictor);
  c.num_blocks = 9;
  c.max_model_len = 36;
  c.scheduler.limits.token_budget = 4;
  *c.scheduler.limits.policy.Find<int64_t>("ltr-starvation-steps") = 5;
  *c.scheduler.limits.policy.Find<int64_t>("ltr-quantum-steps") = 3;
  Harness h(c);
  const std::vector<RequestHandle> both = {AddRequest(&h, 24, 9), AddRequest(&h, 24, 9)};
  EXPECT_EQ(h.Run(200), "") << "neither ends: each loses its KV before it has another token";
  EXPECT_GT(h.loop().Stats().preemptions, 2) << "neither takes the other's KV";
  for (const RequestHandle handle : both) {
    EXPECT_LE(h.outputs()[handle].done_event.preemptions, 3) << "18 tokens in turns of three: at most three each";
  }
}

// --- larry ---

// One place. A prompt of half the memory has waited 10 ms longer than a small one, which is worth 1 point. Two wait:
// memory counts 2 * (0.5 - 0.025) = 0.95 points against it, so it goes first. With six more in the queue it counts 3.8.
TEST(Larry, PressureBringsSmallPromptsForward) {
  for (const int crowd : {0, 6}) {
    HarnessConfig c = PresetConfig("larry");
    c.num_blocks = 40;
    c.max_num_seqs = 1;
    *c.scheduler.limits.policy.Find<double>("larry-lambda") = 100;
    Harness h(c);
    AddRequest(&h, 4, 2);
    ASSERT_EQ(h.Settle(), "");
    const RequestHandle large = AddRequest(&h, 80, 1);
    h.clock().Advance(10 * kMillisecond);
    const RequestHandle small = AddRequest(&h, 4, 1);
    for (int i = 0; i < crowd; ++i) AddRequest(&h, 80, 1);
    ASSERT_EQ(h.Run(), "");
    const bool large_first = h.outputs()[large].done_event.scheduled_ns < h.outputs()[small].done_event.scheduled_ns;
    EXPECT_EQ(large_first, crowd == 0);
  }
}

// By default a second of waiting is worth a hundredth of the memory. Two wait, one of half the memory and one of a
// fortieth: memory counts 2 * (0.5 - 0.025) = 0.95 points for the small one, 95 seconds of waiting as many for the
// other.
TEST(Larry, ByDefaultASecondIsAHundredthOfTheMemory) {
  for (const int64_t seconds : {10, 94, 96}) {
    HarnessConfig c = PresetConfig("larry");
    c.num_blocks = 40;
    c.max_num_seqs = 1;
    Harness h(c);
    AddRequest(&h, 4, 2);
    ASSERT_EQ(h.Settle(), "");
    const RequestHandle large = AddRequest(&h, 80, 1);
    h.clock().Advance(seconds * kSecond);
    const RequestHandle small = AddRequest(&h, 4, 1);
    ASSERT_EQ(h.Run(), "");
    const bool large_first = h.outputs()[large].done_event.scheduled_ns < h.outputs()[small].done_event.scheduled_ns;
    EXPECT_EQ(large_first, seconds > 95) << "the large one had waited " << seconds << " s longer";
  }
}

}  // namespace
}  // namespace tactus::core
