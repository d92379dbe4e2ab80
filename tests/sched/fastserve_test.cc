// FastServe: the feedback queue, its starvation bound and proactive swap; swap on a shortage; padded batches. Exact
// plans of cases small enough to do by hand. A line is one step; see LoggingExecutor.
#include <gtest/gtest.h>

#include "sched/step_bed.h"

namespace tactus {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::Plans;
using testing::PresetConfig;

// One place, three queues of 2, 4 and endless output tokens; a prompt counts as one of them.
HarnessConfig Config() {
  HarnessConfig c = PresetConfig("fastserve");
  *c.scheduler.limits.policy.Find<int64_t>("mlfq-queues") = 3;
  *c.scheduler.limits.policy.Find<int64_t>("mlfq-quantum") = 2;
  c.max_num_seqs = 1;
  c.swap_blocks = 64;
  return c;
}

// Slot 0 has used up the highest queue's quantum when slot 1 comes: its KV of 4 positions (one block) is swapped out
// and comes back when slot 1 has ended, which never sinks below slot 0's queue. Nothing is computed twice.
TEST(FastServe, ANewcomerTakesThePlaceOfWhoHasSunk) {
  Harness h(Config());
  AddRequest(&h, 4, 4);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 3, 3);  // arrives while the first step runs
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "!0 1:0+3* out1", "1:3+1*", "1:4+1*", "0:4+1* in1", "0:5+1*", "0:6+1*"}));
  EXPECT_EQ(h.loop().Stats().recomputed_tokens, 0);
  EXPECT_EQ(h.loop().Stats().swapped_in_blocks, 1);
}

TEST(FastServe, WithinItsQuantumNobodyIsDisturbed) {
  HarnessConfig c = Config();
  *c.scheduler.limits.policy.Find<int64_t>("mlfq-quantum") = 16;
  Harness h(c);
  AddRequest(&h, 4, 4);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 3, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "0:4+1*", "0:5+1*", "0:6+1*", "1:0+3*", "1:3+1*"}));
}

// Without swap space the same decisions, and the prompt is computed again.
TEST(FastServe, WithoutSwapSpaceItRecomputes) {
  HarnessConfig c = Config();
  c.swap_blocks = 0;
  Harness h(c);
  EXPECT_NE(h.scheduler().Describe().find("proactive-swap (recompute: no --swap-space)"), std::string::npos);
  AddRequest(&h, 4, 3);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 3, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+4*", "!0 1:0+3*", "1:3+1*", "0:0+5*", "0:5+1*"}));
  EXPECT_EQ(h.loop().Stats().recomputed_tokens, 4);
}

// What does not fit into the space that is left is recomputed, the rest is swapped: 3 blocks, and 2 are there.
TEST(FastServe, AFullSwapSpaceRecomputes) {
  HarnessConfig c = Config();
  c.swap_blocks = 2;
  Harness h(c);
  EXPECT_EQ(h.scheduler().Describe().find("recompute"), std::string::npos);
  AddRequest(&h, 9, 2);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 3, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.plans(), (Plans{"0:0+9*", "!0 1:0+3*", "0:0+10*"}));
}

// Short of KV instead of places: the one newcomer needs 6 of 8 blocks (max-length reserves 24 tokens). Slots 0 and 1
// hold 3 each and have sunk; slot 1 is the order's last. Both must go, or none.
TEST(FastServe, RoomIsMadeForWhoeverFitsThenAndForNobodyElse) {
  HarnessConfig c = Config();
  c.max_num_seqs = 8;
  c.num_blocks = 8;
  c.max_model_len = 32;
  {
    Harness h(c);
    AddRequest(&h, 4, 8);
    AddRequest(&h, 4, 8);
    ASSERT_EQ(h.Settle(), "");
    AddRequest(&h, 4, 20);
    ASSERT_EQ(h.Settle(), "");
    ASSERT_TRUE(h.Advance());
    ASSERT_EQ(h.Settle(), "");
    EXPECT_EQ(h.plans().back(), "!1 !0 2:0+4* out2");
    ASSERT_EQ(h.Run(), "");
  }
  *c.scheduler.limits.policy.Find<int64_t>("mlfq-quantum") = 4;
  *c.scheduler.limits.policy.Find<int64_t>("mlfq-queues") = 2;
  Harness h(c);
  AddRequest(&h, 4, 8);
  ASSERT_EQ(h.Settle(), "");
  for (int i = 0; i < 3; ++i) {  // three tokens: slot 0 has sunk
    ASSERT_TRUE(h.Advance());
    ASSERT_EQ(h.Settle(), "");
  }
  AddRequest(&h, 4, 8);  // joins the batch, in the highest queue
  ASSERT_EQ(h.Settle(), "");
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 4, 20);  // slot 0 alone would not make room for this one: slot 1 is as high as it is
  ASSERT_EQ(h.Settle(), "");
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(h.plans().back(), "1:4+1* 0:8+1*");
  ASSERT_EQ(h.Run(), "");
}

// Skip-join: a prompt that takes more than a queue's quantum joins a lower one at once. By the step-time model where
// there is one: here a prompt of 30 takes as long as 3 decode steps.
class LinearTime final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& s) const override { return 10 * s.decodes + s.prefill_tokens(); }
};

TEST(FastServe, ALongPromptSkipsTheHighQueues) {
  const LinearTime model;
  for (const bool with_model : {false, true}) {
    HarnessConfig c = Config();
    if (with_model) c.scheduler.limits.step_time = &model;
    *c.scheduler.limits.policy.Find<int64_t>("mlfq-quantum") = 1;
    Harness h(c);
    AddRequest(&h, 2, 1);  // keeps the place for one step
    ASSERT_EQ(h.Settle(), "");
    AddRequest(&h, 30, 1);
    AddRequest(&h, 10, 1);
    ASSERT_EQ(h.Run(), "");
    if (with_model) {
      EXPECT_EQ(h.plans(), (Plans{"0:0+2*", "2:0+10*", "1:0+30*"}));
    } else {  // both cost one: in order of arrival
      EXPECT_EQ(h.plans(), (Plans{"0:0+2*", "1:0+30*", "2:0+10*"}));
    }
  }
}

// The starvation bound: newcomers of the highest queue keep the only place busy for good, and a long answer in the
// lowest queue gets one quantum of it whenever it has waited for --mlfq-promotion. Without that it gets nothing.
struct Starved {
  TimeNs done_ns = 0;
  DurationNs longest_gap_ns = 0;
  int newcomers = 0;
};
Starved ServeALongAnswerUnderAStream(DurationNs promotion_ns, int stream) {
  HarnessConfig c = Config();
  c.scheduler.limits.policy.Find<DurationText>("mlfq-promotion")->ns = promotion_ns;
  c.executor.step_base_ns = kMillisecond;
  c.executor.step_token_ns = 0;
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
  out.done_ns = h.outputs().at(starved).done_event.done_ns;
  return out;
}

TEST(FastServe, PromotionBoundsStarvation) {
  const DurationNs promotion_ns = 40 * kMillisecond;
  const Starved promoted = ServeALongAnswerUnderAStream(promotion_ns, 2000);
  EXPECT_LT(promoted.newcomers, 2000);  // served while they kept coming
  // It waits, then whoever is in the place leaves it: with the end of its quantum of 2 tokens at the latest.
  EXPECT_LE(promoted.longest_gap_ns, promotion_ns + 4 * kMillisecond);
  EXPECT_GE(promoted.longest_gap_ns, promotion_ns);

  const Starved starved = ServeALongAnswerUnderAStream(3600 * kSecond, 300);
  EXPECT_GE(starved.newcomers, 300);  // until the stream ended
  EXPECT_GT(starved.longest_gap_ns, 300 * kMillisecond);
}

// Those that were promoted go in the order in which they had begun to wait, so that under any load they take turns:
// with three long answers, all promoted at once, each has its quantum of 2 tokens before any has a second one.
TEST(FastServe, ThePromotedTakeTurns) {
  HarnessConfig c = Config();
  c.scheduler.limits.policy.Find<DurationText>("mlfq-promotion")->ns = kMillisecond;
  c.executor.step_base_ns = kMillisecond;
  c.executor.step_token_ns = 0;
  Harness h(c);
  std::vector<RequestHandle> all;
  for (int i = 0; i < 3; ++i) all.push_back(AddRequest(&h, 4, 12));
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle r : all) {
    const auto& tokens = h.outputs().at(r).choices[0].token_ns;
    EXPECT_LE(tokens.front(), all.size() * 2 * kMillisecond + 2 * kMillisecond);
    for (size_t i = 1; i < tokens.size(); ++i) EXPECT_LE(tokens[i] - tokens[i - 1], 5 * kMillisecond) << i;
  }
}

// --- swap on a shortage ---

// 4 blocks of 4 tokens, two sequences of 8 + 5: when both need a third block the younger is swapped out, 8 positions,
// and comes back with them when the older has ended.
TEST(Swap, TheYoungestIsSwappedOutOnAShortage) {
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

TEST(Swap, ACancelWhileSwappedOutFreesTheHostsMemory) {
  HarnessConfig c = Config();
  Harness h(c);
  const RequestHandle sunk = AddRequest(&h, 4, 8);
  ASSERT_EQ(h.Settle(), "");
  AddRequest(&h, 3, 6);
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(h.loop().Stats().swap_blocks_used, 1);
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

TEST(Pad, OnlyWhereBatchesExist) {
  HarnessConfig c = Config();
  c.scheduler = {.preset = "orca"};
  *c.scheduler.limits.policy.Find<bool>("pad") = true;
  Harness h(c);
  EXPECT_EQ(h.scheduler_error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(h.scheduler_error().message().find("--composition request-level"), std::string::npos);
}

}  // namespace
}  // namespace tactus
