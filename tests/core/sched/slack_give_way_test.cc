// Which sequence may take KV or a place in the step from which other under AccelGen's choices, one step at a time on
// hand-made views: decodes beside urgent prompts, and sequences that have missed an objective beside those that can
// still be kept. All steps so far took 1 ms (T_max), chunks had 8 tokens (L_c); blocks have 4 tokens.
#include <gtest/gtest.h>

#include "core/sched/accelgen/slack.h"
#include "core/sched/slack_bed.h"
#include "core/sched/step_bed.h"

namespace tactus::slack_give_way_test {
namespace {

using core::kMs;
using core::SlackNote;
using testing::HarnessConfig;
using testing::PresetConfig;
using testing::StepBed;

HarnessConfig Config(int64_t budget, int64_t blocks = 0, int32_t context = 256) {
  HarnessConfig c = PresetConfig("accelgen", budget);
  c.scheduler.limits.policy.Find<DurationText>("accelgen-ttft")->ns =
      3600 * kSecond;  // requests without an objective are never urgent
  c.scheduler.limits.policy.Find<DurationText>("accelgen-tbt")->ns = 3600 * kSecond;
  c.scheduler.budget = "fixed";
  if (blocks > 0) c.num_blocks = blocks;
  c.max_model_len = context;
  return c;
}

struct SlackBed : StepBed {
  explicit SlackBed(const HarnessConfig& config) : StepBed(config) {
    core::StepRecord r;
    r.step = 0;
    r.end_ns = core::kMs;
    r.prefill_tokens = 8;
    r.prefill_items = 1;
    Ended(r);
  }
  SlackNote& Note(SlotId slot) { return *StepBed::Note<SlackNote>(slot); }
};

// A sequence whose first token came too late.
core::SequenceSpec Missed(DurationNs tbt_ns = 0) {
  return {.max_output_tokens = 7, .slo = {core::kMs, tbt_ns, 0}};
}

// Steps have been short, this one is not: 4,000 tokens at 1 us, as long as the next. A decode that sits out would get
// its token after 8 ms, so one that may not wait longer has it reserved from an urgent prompt's chunk, although by
// T_max it is not urgent.
TEST(GiveWay, AnUrgentPromptLeavesTheTokensOfDecodesThatWouldBeLate) {
  core::FlatThenLinear model;
  model.tile = 16;
  for (const DurationNs tbt : {8 * core::kMs, 8 * core::kMs + 1}) {
    HarnessConfig c = Config(4000, 4000, 8192);
    c.scheduler.limits.step_time = &model;
    *c.scheduler.limits.policy.Find<int64_t>("accelgen-pivot") = 16;
    SlackBed bed(c);
    bed.Decoding(4, 1, {.slo = {0, tbt, 0}});
    bed.Waiting(5000, {.slo = {417 * core::kMs, 0, 0}});  // 417 chunks of 12 tokens: no slack at all
    EXPECT_EQ(bed.Plan(), tbt == 8 * core::kMs ? "1:0+3999 0:4+1*" : "1:0+4000") << tbt << " ns";
  }
}

// Seven blocks, six of them held by two decodes, and an urgent prompt that can be kept. The decode that has missed
// loses its KV, although the other has more slack.
TEST(GiveWay, AMissedDecodeLosesItsKvBeforeTheMostSlack) {
  SlackBed bed(Config(64, 7, 16));
  bed.Decoding(9, 1, Missed(500 * kSecond));
  bed.Decoding(9, 1, {.max_output_tokens = 7, .slo = {0, 1000 * kSecond, 0}});
  bed.Waiting(8, {.max_output_tokens = 8, .slo = {3 * core::kMs + kMs / 2, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * core::kMs), "!0 2:0+8* 1:9+1*");
}

// The last to arrive of two missed decodes loses its KV.
TEST(GiveWay, TheLastMissedDecodeToArriveLosesItsKvFirst) {
  SlackBed bed(Config(64, 7, 16));
  bed.Decoding(9, 1, Missed(1000 * kSecond));
  bed.Decoding(9, 1, Missed(500 * kSecond));
  bed.Waiting(8, {.max_output_tokens = 8, .slo = {3 * core::kMs + kMs / 2, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * core::kMs), "!1 2:0+8* 0:9+1*");
}

// Four blocks, all held, and both decodes need another. The tighter one goes first but has missed: it takes nothing
// from the other, which can be kept, and loses its KV to it.
TEST(GiveWay, AMissedDecodeTakesNoKvFromKeptOnes) {
  SlackBed bed(Config(64, 4, 16));
  bed.Decoding(7, 2, Missed(2 * core::kMs));
  bed.Decoding(7, 2, {.max_output_tokens = 9});
  EXPECT_EQ(bed.Plan(2 * core::kMs), "!0 1:8+1*");
}

// A later token that came too late counts like the first, and so does an overdue job.
TEST(GiveWay, LateGapsAndOverdueJobsCountAsMissed) {
  core::Bed bed;
  bed.ThreeSteps();
  const core::SlackModel slack(core::Limits());
  const SlotId gap = bed.Wait(4, {0, 5 * core::kMs, 0}), job = bed.Wait(4, {0, 0, 5 * core::kMs}),
               none = bed.Wait(4, {});
  for (const SlotId slot : {gap, job, none}) bed.Compute(slot, 4);
  for (const SlotId slot : {gap, job, none}) EXPECT_FALSE(slack.GivesWay(bed.View(5 * core::kMs), slot)) << slot;
  bed.Decode(gap);
  EXPECT_TRUE(slack.GivesWay(bed.View(10 * core::kMs + 1), gap)) << "its second token took more than 5 ms";
  EXPECT_TRUE(slack.GivesWay(bed.View(10 * core::kMs + 1), job)) << "its 5 ms are over";
  EXPECT_FALSE(slack.GivesWay(bed.View(100 * kSecond), none)) << "it has no objective";
}

// A sequence that lost its KV goes before all others, unless it had missed an objective: then it goes behind all that
// can be kept, and before those that missed and arrived later.
TEST(GiveWay, APreemptedMissedSequenceWaitsBehindKeptOnes) {
  for (const bool missed : {false, true}) {
    SlackBed bed(Config(8));
    bed.Note(bed.Preempted(7, 1)).missed = missed;
    bed.Waiting(8);
    bed.Waiting(8, {.slo = {core::kMs, 0, 0}});
    EXPECT_EQ(bed.Plan(2 * core::kMs), missed ? "1:0+8*" : "0:0+8*");
  }
}

// A preempted sequence that can be kept takes KV only from one that has missed.
TEST(GiveWay, APreemptedSequenceTakesKvFromMissedOnes) {
  for (const bool missed : {false, true}) {
    SlackBed bed(Config(64, 4, 16));
    bed.Preempted(7, 1, {.max_output_tokens = 8, .slo = {0, 2 * core::kMs, 0}});
    bed.Decoding(9, 1, missed ? Missed() : core::SequenceSpec{.max_output_tokens = 7});
    EXPECT_EQ(bed.Plan(2 * core::kMs), missed ? "!1 0:0+8*" : "1:9+1*");
  }
}

// A sequence in its turn takes KV from another that has missed. From then on it keeps its own to its end, as if it
// could be kept, and no other's turn comes nearer.
TEST(GiveWay, ATurnLastsToTheEndOfTheAnswer) {
  HarnessConfig c = Config(64, 4, 16);
  *c.scheduler.limits.policy.Find<int64_t>("accelgen-missed-turn") = 1;
  SlackBed bed(c);
  bed.Decoding(9, 1, Missed());
  const SlotId turn = bed.Waiting(8, {.max_output_tokens = 8, .slo = {core::kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * core::kMs), "0:9+1*");
  EXPECT_EQ(bed.Plan(3 * core::kMs), "!0 1:0+8*");
  EXPECT_TRUE(bed.Note(turn).in_turn);
  const SlotId next = bed.Waiting(3, {.max_output_tokens = 1, .slo = {core::kMs, 0, 0}});
  for (int i = 4; i < 8; ++i) {
    EXPECT_EQ(bed.Plan(i * core::kMs), "1:" + std::to_string(i + 4) + "+1*");
    EXPECT_EQ(bed.Note(next).turn_from, 0) << "step " << i;
    EXPECT_EQ(bed.Note(0).turn_from, 0) << "step " << i;
  }
}
TEST(GiveWay, ASequenceInItsTurnKeepsItsKv) {
  SlackBed bed(Config(64, 7, 16));
  bed.Note(bed.Decoding(9, 1, Missed(500 * kSecond))).in_turn = true;
  bed.Decoding(9, 1, {.max_output_tokens = 7, .slo = {0, 1000 * kSecond, 0}});
  bed.Waiting(8, {.max_output_tokens = 8, .slo = {3 * core::kMs + kMs / 2, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * core::kMs), "0:9+1* 1:9+1*");
}

// A missed sequence starts only if each running sequence can continue for 256 tokens, 64 blocks: else it would soon
// lose what it has computed. The decode holds two blocks after this step, the prompt needs two.
TEST(GiveWay, AMissedPromptStartsOnlyIfOthersCanContinue) {
  for (const bool missed : {false, true}) {
    for (const int64_t blocks : {67, 68}) {
      SlackBed bed(Config(64, blocks));
      bed.Decoding(4, 1);
      bed.Waiting(8, {.slo = {missed ? core::kMs : 3600 * kSecond, 0, 0}});
      EXPECT_EQ(bed.Plan(2 * core::kMs), missed && blocks == 67 ? "0:4+1*" : "0:4+1* 1:0+8*") << blocks;
    }
  }
}

// The half-done prompt holds two blocks and needs two more; the urgent prompt needs two. It starts only if all fit.
TEST(GiveWay, AnUrgentPromptLeavesTheKvOfHalfDonePrompts) {
  for (const auto& [blocks, plan] : {std::pair<int64_t, const char*>(5, "0:8+8*"), {6, "1:0+8* 0:8+8*"}}) {
    SlackBed bed(Config(64, blocks, 16));
    bed.Prefilling(16, 8);
    bed.Waiting(8, {.max_output_tokens = 8, .slo = {3 * core::kMs + kMs / 2, 0, 0}});
    EXPECT_EQ(bed.Plan(2 * core::kMs), plan) << blocks << " blocks";
  }
}

// A step of eight tokens, and an urgent prompt of sixteen. Its chunk of seven takes two blocks, and the nine tokens
// left for later need three. The decode holds two.
TEST(GiveWay, AnUrgentPromptStartsOnlyIfItsRestFits) {
  for (const auto& [blocks, plan] : {std::pair<int64_t, const char*>(6, "0:4+1*"), {7, "0:4+1* 1:0+7"}}) {
    SlackBed bed(Config(8, blocks, 16));
    bed.Decoding(4, 1, {.slo = {0, core::kMs, 0}});
    bed.Waiting(16, {.max_output_tokens = 1, .slo = {5 * core::kMs, 0, 0}});
    EXPECT_EQ(bed.Plan(2 * core::kMs), plan) << blocks << " blocks";
  }
}

// Both can be kept, and the decode has more slack. As published the urgent prompt takes its KV.
TEST(GiveWay, AnUrgentPromptTakesNoKvFromKeptSequences) {
  for (const auto& [preset, plan] : {std::pair("accelgen", "0:9+1*"), {"accelgen-paper", "!0 1:0+8*"}}) {
    HarnessConfig c = Config(64, 4, 16);
    c.scheduler.preset = preset;
    SlackBed bed(c);
    bed.Decoding(9, 1, {.max_output_tokens = 7, .slo = {0, 1000 * kSecond, 0}});
    bed.Waiting(8, {.max_output_tokens = 8, .slo = {3 * core::kMs + kMs / 2, 0, 0}});
    EXPECT_EQ(bed.Plan(2 * core::kMs), plan) << preset;
  }
}

// A late prompt, and a decode with hours left that holds the KV. Ours lets the decode keep it; as published the prompt
// is urgent, because it has less slack, and takes the KV of the most slack.
TEST(AsPublished, ALatePromptTakesKvFromMoreSlack) {
  for (const auto& [preset, plan] :
       {std::pair("accelgen", "0:9+1*"), {"accelgen-paper", "!0 1:0+8*"}, {"accelgen-paper-no-batch", "0:9+1*"}}) {
    HarnessConfig c = Config(64, 4, 16);
    c.scheduler.preset = preset;
    SlackBed bed(c);
    bed.Decoding(9, 1, {.max_output_tokens = 7, .slo = {0, 1000 * kSecond, 0}});
    bed.Waiting(8, {.max_output_tokens = 8, .slo = {core::kMs, 0, 0}});
    EXPECT_EQ(bed.Plan(2 * core::kMs), plan) << preset;
  }
}

TEST(AsPublished, LatePromptsGoFirstExceptUnderRuleBehind) {
  for (const auto& [missed, plan] : {std::pair("auto", "1:0+8*"), {"urgent", "1:0+8*"}, {"behind", "0:0+8*"}}) {
    HarnessConfig c = Config(8);
    c.scheduler.preset = "accelgen-paper";
    *c.scheduler.limits.policy.Find<std::string>("accelgen-missed") = missed;
    SlackBed bed(c);
    bed.Waiting(8);
    bed.Waiting(8, {.slo = {core::kMs, 0, 0}});
    EXPECT_EQ(bed.Plan(2 * core::kMs), plan) << missed;
  }
}

// Late prompts that are not urgent come behind urgent ones and before the rest.
TEST(AsPublished, RuleFirstPutsLatePromptsBehindUrgentOnes) {
  for (const auto& [missed, plan] : {std::pair("urgent", "1:0+8*"), {"first", "0:0+8*"}}) {
    HarnessConfig c = Config(8);
    c.scheduler.preset = "accelgen-paper";
    *c.scheduler.limits.policy.Find<std::string>("accelgen-missed") = missed;
    SlackBed bed(c);
    bed.Waiting(8, {.slo = {3 * core::kMs + kMs / 2, 0, 0}});  // 2 ms have passed and one step takes 1
    bed.Waiting(8, {.slo = {core::kMs, 0, 0}});
    bed.Waiting(8);
    EXPECT_EQ(bed.Plan(2 * core::kMs), plan) << missed;
  }
}

}  // namespace
}  // namespace tactus::slack_give_way_test
