// FastServe: the feedback queue, pauses with KV, swap for blocks, the starvation bound; swap in a shortage; padded
// batches. Exact plans of cases small enough to compute by hand. A line is one step; see LoggingExecutor.
#include <gtest/gtest.h>

#include "core/sched/step_bed.h"

namespace tactus::core {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::Plans;
using testing::PresetConfig;

// One sequence computes per step of a millisecond, whatever its tokens; quanta of 2 ms, 4 ms and so on, so that a
// sequence sinks in its third step.
HarnessConfig Config() {
  HarnessConfig c = PresetConfig("fastserve");
  c.scheduler.limits.policy.Find<DurationText>("mlfq-quantum")->ns = 2 * kMillisecond;
  c.max_num_seqs = 1;
  c.swap_blocks = 64;
  c.executor.step_base_ns = kMillisecond;
  c.executor.step_token_ns = 0;
  return c;
}
DurationText* Promotion(HarnessConfig* c) {
  return c->scheduler.limits.policy.Find<DurationText>("mlfq-promotion");
}
int64_t* PromotionSteps(HarnessConfig* c) {
  return c->scheduler.limits.policy.Find<int64_t>("mlfq-promotion-steps");
}

// Slot 1 arrives while slot 0 is in its first step. After its third slot 0 has sunk and is paused: it keeps its KV and
// continues when slot 1 has ended. Nothing is copied or computed twice.
TEST(FastServe, ASunkSequencePausesAndKeepsItsKv) {
  Harness h(Config());
  AddRequest(&h, 4, 5);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 3, 3);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "0:4+1*", "0:5+1*", "1:0+3*", "1:3+1*", "1:4+1*", "0:6+1*", "0:7+1*"}));
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
}

// Two places in a step, three sequences: the third waits for the quantum of the first two, then all three hold KV.
TEST(FastServe, PlacesLimitSequencesPerStepAndNotThoseWithKv) {
  HarnessConfig c = Config();
  c.max_num_seqs = 2;
  Harness h(c);
  for (int i = 0; i < 3; ++i) AddRequest(&h, 4, 5);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4* 1:0+4*", "0:4+1* 1:4+1*", "0:5+1* 1:5+1*", "2:0+4* 0:6+1*", "2:4+1* 0:7+1*",
                              "2:5+1* 1:6+1*", "2:6+1* 1:7+1*", "2:7+1*"}));
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
}

// Quanta of 1 ms: slot 0 sinks after two steps, slot 1 after the two that follow, and to the front of the second queue:
// it goes before slot 0, which arrived earlier, and keeps that place for its quantum of 2 ms.
TEST(FastServe, ASinkingSequenceGoesToTheFrontOfItsQueue) {
  HarnessConfig c = Config();
  c.scheduler.limits.policy.Find<DurationText>("mlfq-quantum")->ns = kMillisecond;
  Harness h(c);
  AddRequest(&h, 4, 5);
  AddRequest(&h, 4, 5);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "0:4+1*", "1:0+4*", "1:4+1*", "1:5+1*", "1:6+1*", "1:7+1*", "0:5+1*", "0:6+1*",
                              "0:7+1*"}));
}

// Three blocks of four. When slot 1 starts, slot 0 holds two and the last goes to slot 1: with none free the paused
// sequence is swapped out in the same step, ahead of the block that slot 1 needs next.
TEST(FastServe, BlocksAreFreedAheadOfNeed) {
  HarnessConfig c = Config();
  c.num_blocks = 3;
  c.max_model_len = 12;
  Harness h(c);
  AddRequest(&h, 4, 5);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 4, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "0:4+1*", "0:5+1*", "!0 1:0+4* out2", "1:4+1*", "0:6+1* in2", "0:7+1*"}));
  EXPECT_EQ(h.loop().Stats().recomputed_tokens, 0);
}

// With two more blocks there is no shortage, and nothing moves.
TEST(FastServe, NothingIsSwappedWhileBlocksAreFree) {
  HarnessConfig c = Config();
  c.num_blocks = 5;
  c.max_model_len = 12;
  Harness h(c);
  AddRequest(&h, 4, 5);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 4, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "0:4+1*", "0:5+1*", "1:0+4*", "1:4+1*", "0:6+1*", "0:7+1*"}));
}

// Slots 0 and 1 have sunk and hold two of five blocks each. A newcomer of two blocks takes those of slot 0, which sank
// first and is last in its queue although it arrived first. One of three takes them too, and leaves no block free, so
// that slot 1 is swapped out ahead of need. With a sixth block the first leaves none free either, and only slot 0 is
// swapped out.
TEST(FastServe, BlocksComeFromTheTailOfTheLowestQueue) {
  struct Case {
    int32_t prompt;
    int64_t blocks;
    const char* plan;
  };
  for (const Case& t :
       {Case{5, 5, "!0 2:0+5* out2"}, Case{12, 5, "!0 !1 2:0+12* out4"}, Case{5, 6, "!0 2:0+5* out2"}}) {
    SCOPED_TRACE(t.plan);
    HarnessConfig c = Config();
    c.num_blocks = t.blocks;
    c.max_model_len = 16;
    Harness h(c);
    AddRequest(&h, 4, 5);
    AddRequest(&h, 4, 5);
    for (int i = 0; i < 6; ++i) {
      ASSERT_EQ(h.Settle(), "");
      if (i == 5) AddRequest(&h, t.prompt, 2);
      ASSERT_TRUE(h.Advance());
    }
    ASSERT_EQ(h.Settle(), "");
    EXPECT_EQ(h.plans().back(), t.plan);
    ASSERT_EQ(h.Run(), "");
    EXPECT_EQ(h.loop().Stats().recomputed_tokens, 0);
  }
}

// Two of six blocks are free. Of three newcomers of a block each one gets the place in the step, and its block is free:
// none gives way for those that cannot start in it.
TEST(FastServe, NoSequenceGivesWayForOneWithoutAPlaceInTheStep) {
  HarnessConfig c = Config();
  c.num_blocks = 6;
  c.max_model_len = 16;
  Harness h(c);
  AddRequest(&h, 4, 5);
  AddRequest(&h, 4, 5);
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(h.Settle(), "");
    for (int n = 0; i == 5 && n < 3; ++n) AddRequest(&h, 3, 1);
    ASSERT_TRUE(h.Advance());
  }
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(h.plans().back(), "2:0+3*");
  ASSERT_EQ(h.Run(), "");
}

// Without swap space a newcomer's blocks come from KV that is computed again, and nothing is dropped ahead of need.
TEST(FastServe, WithoutSwapSpaceVictimsAreRecomputedAndNoneAhead) {
  HarnessConfig c = Config();
  c.swap_blocks = 0;
  c.num_blocks = 3;
  c.max_model_len = 12;
  Harness h(c);
  EXPECT_NE(h.scheduler().Describe().find("proactive-swap (recompute: no --swap-space)"), std::string::npos);
  AddRequest(&h, 4, 5);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 4, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "0:4+1*", "0:5+1*", "1:0+4*", "!0 1:4+1*", "0:0+7*", "0:7+1*"}));
  EXPECT_EQ(h.loop().Stats().recomputed_tokens, 6);
}

// Skip-join: a prompt that takes longer than a queue's quantum joins a lower one at once, by the step-time model.
class LinearTime final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& s) const override { return 10 * s.decodes + s.prefill_tokens(); }
};

TEST(FastServe, ALongPromptSkipsTheHighQueues) {
  const LinearTime model;
  for (const bool with_model : {false, true}) {
    HarnessConfig c = Config();
    if (with_model) c.scheduler.limits.step_time = &model;
    c.scheduler.limits.policy.Find<DurationText>("mlfq-quantum")->ns = 10;
    Harness h(c);
    AddRequest(&h, 2, 1);  // keeps the place for one step
    ASSERT_EQ(h.Settle(), "");
    AddRequest(&h, 30, 1);
    AddRequest(&h, 10, 1);
    ASSERT_EQ(h.Run(), "");
    if (with_model) {
      EXPECT_EQ(h.plans(), (Plans{"0:0+2*", "2:0+10*", "1:0+30*"}));
    } else {  // both in the first queue: in order of arrival
      EXPECT_EQ(h.plans(), (Plans{"0:0+2*", "1:0+30*", "2:0+10*"}));
    }
  }
}

// The starvation bound: newcomers always occupy the only place, and a long answer in a low queue gets a step of it at
// the first check after --mlfq-promotion without service. Without promotion it gets nothing.
struct Starved {
  DurationNs longest_gap_ns = 0;
  int newcomers = 0;
};
Starved ServeALongAnswerUnderAStream(DurationNs promotion_ns, int64_t look_steps, int stream) {
  HarnessConfig c = Config();
  Promotion(&c)->ns = promotion_ns;
  *PromotionSteps(&c) = look_steps;
  Harness h(c);
  const RequestHandle starved = AddRequest(&h, 4, 21);
  EXPECT_EQ(h.Settle(), "");
  Starved out;
  std::vector<RequestHandle> live;
  while (!h.outputs().at(starved).done) {
    if (out.newcomers < stream) {  // always two in the queue
      std::erase_if(live, [&](RequestHandle r) { return h.outputs().at(r).done; });
      for (; live.size() < 3; ++out.newcomers) live.push_back(AddRequest(&h, 3, 2));
    }
    if (const std::string broken = h.Settle(); !broken.empty()) {
      ADD_FAILURE() << broken;
      break;
    }
    if (!h.Advance()) break;
  }
  const auto& tokens = h.outputs().at(starved).choices[0].token_ns;
  for (size_t i = 1; i < tokens.size(); ++i)
    out.longest_gap_ns = std::max(out.longest_gap_ns, tokens[i] - tokens[i - 1]);
  return out;
}

TEST(FastServe, PromotionBoundsStarvation) {
  for (const int64_t look_steps : {1, 7}) {
    const Starved promoted = ServeALongAnswerUnderAStream(40 * kMillisecond, look_steps, 2000);
    EXPECT_LT(promoted.newcomers, 2000);  // served while they kept coming
    EXPECT_LE(promoted.longest_gap_ns, (40 + look_steps + 1) * kMillisecond);
    EXPECT_GE(promoted.longest_gap_ns, 40 * kMillisecond);
  }
  const Starved starved = ServeALongAnswerUnderAStream(3600 * kSecond, 1, 300);
  EXPECT_GE(starved.newcomers, 300);  // until the stream ended
  EXPECT_GT(starved.longest_gap_ns, 300 * kMillisecond);
}

// A check runs every mlfq-promotion-steps steps, not whenever a sequence has waited: of two checks 50 steps apart the
// second promotes it.
TEST(FastServe, PromotionRunsEveryPromotionSteps) {
  const Starved promoted = ServeALongAnswerUnderAStream(10 * kMillisecond, 50, 2000);
  EXPECT_GE(promoted.longest_gap_ns, 40 * kMillisecond);
  EXPECT_LE(promoted.longest_gap_ns, 61 * kMillisecond);
}

// Sequences promoted at one check go longest unserved first, one step each: under any load they take turns.
TEST(FastServe, PromotedSequencesTakeTurns) {
  HarnessConfig c = Config();
  Promotion(&c)->ns = kMillisecond;
  *PromotionSteps(&c) = 1;
  c.scheduler.limits.policy.Find<DurationText>("mlfq-quantum")->ns = kMillisecond / 2;
  Harness h(c);
  std::vector<RequestHandle> all;
  for (int i = 0; i < 3; ++i) all.push_back(AddRequest(&h, 4, 12));
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle r : all) {
    const auto& tokens = h.outputs().at(r).choices[0].token_ns;
    for (size_t i = 1; i < tokens.size(); ++i) EXPECT_LE(tokens[i] - tokens[i - 1], 3 * kMillisecond) << i;
  }
}

// --- swap in a shortage ---

// 4 blocks of 4 tokens, two sequences of 8 + 5: when both need a third block the younger is swapped out, 8 positions,
// and comes back with them when the older has ended.
TEST(Swap, TheYoungestIsSwappedOutInAShortage) {
  HarnessConfig c = Config();
  c.scheduler = {.preset = "sarathi-serve", .preemption = "swap"};
  c.max_num_seqs = 4;
  c.num_blocks = 4;
  c.max_model_len = 16;
  Harness h(c);
  AddRequest(&h, 8, 3);
  AddRequest(&h, 8, 3);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+8* 1:0+8*", "!1 0:8+1* out2", "0:9+1*", "1:8+1* in2", "1:9+1*"}));
  EXPECT_EQ(h.loop().Stats().recomputed_tokens, 0);
}

TEST(Swap, ACancelWhileSwappedOutFreesHostMemory) {
  HarnessConfig c = Config();
  c.num_blocks = 3;
  c.max_model_len = 12;
  Harness h(c);
  const RequestHandle sunk = AddRequest(&h, 4, 8);
  AddRequest(&h, 4, 2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(h.Settle(), "");
    ASSERT_TRUE(h.Advance());
  }
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(h.loop().Stats().swap_blocks_used, 2);
  h.Cancel(sunk);
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(h.loop().Stats().swap_blocks_used, 0);
  ASSERT_EQ(h.Run(), "");
}

// --- request-level --pad ---

// Prompts of 5, 10 and 3: 12 tokens of padding to the longest. The first ends after one token, the last after two, and
// their rows are computed until the second has its fourth.
TEST(Pad, ABatchCostsItsLongest) {
  HarnessConfig c = Config();
  c.scheduler = {.preset = "request-level"};
  *c.scheduler.limits.policy.Find<bool>("pad") = true;
  c.max_num_seqs = 4;
  Harness h(c);
  AddRequest(&h, 5, 1);
  AddRequest(&h, 10, 4);
  AddRequest(&h, 3, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+5* 1:0+10* 2:0+3* p12", "1:10+1* 2:3+1* p1", "1:11+1* p2", "1:12+1* p2"}));
}

TEST(Pad, IsRefusedWithoutBatches) {
  HarnessConfig c = Config();
  c.scheduler = {.preset = "orca"};
  *c.scheduler.limits.policy.Find<bool>("pad") = true;
  Harness h(c);
  EXPECT_EQ(h.scheduler_error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(h.scheduler_error().message().find("--composition request-level"), std::string::npos);
}

}  // namespace
}  // namespace tactus::core
