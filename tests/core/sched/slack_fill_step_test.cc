// AccelGen's composition, one step at a time on hand-made views: every rule of slack-fill with the resulting plan. All
// steps so far took 1 ms (T_max), chunks had 8 tokens (L_c): a sequence with at most 1 ms of slack is urgent.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/sched/accelgen/slack.h"
#include "core/sched/step_bed.h"

namespace tactus::slack_fill_step_test {
namespace {

using testing::HarnessConfig;
using testing::PresetConfig;
using testing::StepBed;

constexpr DurationNs kMs = kMillisecond;
constexpr DurationNs kHour = 3600 * kSecond;

HarnessConfig Config(int64_t budget) {
  HarnessConfig c = PresetConfig("accelgen", budget);
  c.scheduler.limits.policy.Find<DurationText>("accelgen-ttft")->ns =
      3600 * kSecond;  // requests without an objective are never urgent
  c.scheduler.limits.policy.Find<DurationText>("accelgen-tbt")->ns = 3600 * kSecond;
  *c.scheduler.limits.policy.Find<int64_t>("accelgen-long-prompt") = 100;
  c.scheduler.budget = "fixed";
  c.max_model_len = 256;
  return c;
}

struct SlackBed : StepBed {
  explicit SlackBed(const HarnessConfig& config, core::InjectedChoices injected = {})
      : StepBed(config, std::move(injected)) {
    core::StepRecord r;
    r.step = 0;
    r.end_ns = kMs;
    r.prefill_tokens = 8;
    r.prefill_items = 1;
    Ended(r);
  }
};

// A decode with a TBT objective of 2 ms has 1 ms of slack once it waits: urgent. The step's first token is reserved for
// it; once it has it, the urgent prompt takes the rest.
TEST(SlackFillStep, AReservedTokenIsReleasedOnceTheDecodeHasIt) {
  SlackBed bed(Config(8));
  bed.Decoding(4, 1, {.slo = {0, 2 * kMs, 0}});
  bed.Prefilling(40, 8, {.slo = {5 * kMs, 0, 0}});  // 32 tokens left: 4 chunks of 1 ms, 1 ms of slack, and younger
  EXPECT_EQ(bed.Plan(), "0:4+1* 1:8+7");
}

// The prompt has less slack and goes first: a token stays reserved for the decode.
TEST(SlackFillStep, AnUrgentDecodesTokenIsReservedFromPromptsBeforeIt) {
  SlackBed bed(Config(8));
  bed.Decoding(4, 1, {.slo = {0, 2 * kMs, 0}});
  bed.Prefilling(40, 8, {.slo = {4 * kMs, 0, 0}});  // no slack at all
  EXPECT_EQ(bed.Plan(), "1:8+7 0:4+1*");
}

// Nothing is reserved for a decode that is not urgent: it sits the step out and keeps its KV.
TEST(SlackFillStep, ADecodeThatIsNotUrgentSitsOut) {
  SlackBed bed(Config(8));
  bed.Decoding(4, 1, {.slo = {0, 2 * kMs + 1, 0}});
  bed.Prefilling(40, 8, {.slo = {4 * kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(), "1:8+8");
}

// With equal slack the older goes first.
TEST(SlackFillStep, WithEqualSlackTheOlderGoesFirst) {
  SlackBed bed(Config(8));
  bed.Prefilling(40, 8, {.slo = {4 * kMs, 0, 0}});
  bed.Prefilling(40, 8, {.slo = {4 * kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(), "0:8+8");
}

// An urgent prompt in the queue is ordered among running ones by its slack.
TEST(SlackFillStep, UrgentPromptsStartFromTheQueue) {
  SlackBed bed(Config(8));
  bed.Prefilling(40, 8, {.slo = {4 * kMs + 2, 0, 0}});
  bed.Waiting(5, {.slo = {kMs + 1, 0, 0}});  // one chunk: 1 ns of slack, and goes before the 2 ns of the other
  EXPECT_EQ(bed.Plan(), "1:0+5* 0:8+3");
}

// As published. Four blocks in all, three of them held by a decode that has less slack than the prompt. The urgent
// prompt of 16 tokens gets a chunk of the free KV: one block.
TEST(SlackFillStep, AnUrgentPromptTakesAChunkOfTheKvThatIsLeft) {
  HarnessConfig c = Config(64);
  c.scheduler.preset = "accelgen-paper";
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Decoding(9, 1, {.max_output_tokens = 4, .slo = {0, kMs, 0}});
  bed.Waiting(16, {.max_output_tokens = 1, .slo = {2 * kMs + kMs / 2, 0, 0}});  // two chunks: half a ms of slack
  EXPECT_EQ(bed.Plan(), "0:9+1* 1:0+4");
}

// Whole prompts get all of it or nothing.
TEST(SlackFillStep, AWholeUrgentPromptTakesNoChunk) {
  HarnessConfig c = Config(64);
  c.scheduler.composition = "slack-fill-whole";
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Decoding(9, 1, {.max_output_tokens = 4, .slo = {0, kMs, 0}});
  bed.Waiting(16, {.max_output_tokens = 1, .slo = {2 * kMs + kMs / 2, 0, 0}});
  EXPECT_EQ(bed.Plan(), "0:9+1*");
}

// Slot 0 lost its KV before and waits; it goes before all others in the queue, and slot 1 has unlimited slack. Even
// under a preemption that would take from any sequence it takes no KV: it waits for free KV.
TEST(SlackFillStep, APreemptedSequenceTakesNoKv) {
  HarnessConfig c = Config(64);
  c.scheduler.preemption = "youngest-recompute";
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Preempted(7, 1, {.max_output_tokens = 8, .slo = {0, 2 * kMs, 0}});
  bed.Decoding(9, 1, {.max_output_tokens = 4});
  EXPECT_EQ(bed.Plan(), "1:9+1*");
}

// As published a newcomer in its place does: it is urgent, and the decode has more slack.
TEST(SlackFillStep, AsPublishedAnUrgentNewcomerTakesKv) {
  HarnessConfig c = Config(64);
  c.scheduler.preset = "accelgen-paper";
  c.scheduler.preemption = "youngest-recompute";
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Decoding(9, 1, {.max_output_tokens = 4});
  bed.Waiting(8, {.max_output_tokens = 8, .slo = {2 * kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(), "!0 1:0+8*");
}

// An urgent newcomer never takes KV from a sequence with less slack.
TEST(SlackFillStep, AnUrgentNewcomerTakesNoKvFromLessSlack) {
  HarnessConfig c = Config(64);
  c.scheduler.preset = "accelgen-paper";
  c.scheduler.preemption = "youngest-recompute";
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Decoding(9, 1, {.max_output_tokens = 4, .slo = {0, kMs, 0}});        // no slack
  bed.Waiting(8, {.max_output_tokens = 8, .slo = {kMs + kMs / 2, 0, 0}});  // half a ms
  EXPECT_EQ(bed.Plan(), "0:9+1* 1:0+4");                                   // a chunk of the free KV
}

HarnessConfig Completed(int64_t budget) {
  HarnessConfig c = Config(budget);
  *c.scheduler.limits.policy.Find<std::string>("era") = "completed";
  return c;
}

// The paper's rule: long prompts (of at least 100 tokens) run one after the other. 100 is long, 99 is not.
TEST(SlackFillStep, ALongPromptHasAtLeastTheLimit) {
  for (const int32_t prompt : {99, 100}) {
    SlackBed bed(Completed(256));
    bed.Prefilling(120, 119);
    bed.Waiting(prompt);
    EXPECT_EQ(bed.Plan(), prompt == 99 ? "1:0+99* 0:119+1*" : "0:119+1*") << prompt;
  }
}
// The limit also applies to the running prompt, and to one that starts in the same step.
TEST(SlackFillStep, TheLongLimitAppliesToRunningAndStartingPrompts) {
  for (const int32_t prompt : {99, 100}) {
    SlackBed bed(Completed(256));
    bed.Prefilling(prompt, prompt - 1);
    bed.Waiting(120);
    EXPECT_EQ(bed.Plan(), prompt == 99 ? "1:0+120* 0:98+1*" : "0:99+1*") << prompt;
  }
  for (const int32_t prompt : {99, 100}) {
    SlackBed bed(Completed(160));
    bed.Waiting(prompt);
    bed.Waiting(120);
    EXPECT_EQ(bed.Plan(), prompt == 99 ? "1:0+120* 0:0+40" : "1:0+120*") << prompt;  // the longer has less slack
  }
}

// An objective makes a long prompt urgent, and then it does not wait for another.
TEST(SlackFillStep, AnUrgentLongPromptStartsBesideAnother) {
  SlackBed bed(Completed(64));
  bed.Prefilling(120, 119);
  bed.Waiting(100, {.slo = {13 * kMs, 0, 0}});  // 13 chunks: no slack, not late
  EXPECT_EQ(bed.Plan(), "1:0+64");
}

// Under --era kv a new long prompt (25 blocks) waits only while fewer blocks are free than it and the rest of the
// running prompt (29 blocks beyond the one that it holds) will take: 55 blocks in all are enough, 54 are not.
TEST(SlackFillStep, ALongPromptWaitsForTheKvOfRunningLongOnes) {
  const auto plan = [](const char* era, int64_t blocks, bool decodes) {
    HarnessConfig c = Config(8);
    c.scheduler.preset = "accelgen-paper";  // its admission leaves no blocks for running prompts
    *c.scheduler.limits.policy.Find<std::string>("era") = era;
    c.num_blocks = blocks;
    c.max_model_len = 140;
    SlackBed bed(c);
    decodes ? bed.Decoding(120, 1) : bed.Prefilling(120, 4);
    bed.Waiting(100, {.slo = {kHour - kSecond, 0, 0}});  // before the other
    return bed.Plan();
  };
  EXPECT_EQ(plan("kv", 55, false), "1:0+8") << "there is KV for both";
  EXPECT_EQ(plan("kv", 54, false), "0:4+8") << "one block short";
  EXPECT_EQ(plan("completed", 55, false), "0:4+8");
  EXPECT_EQ(plan("off", 54, false), "1:0+8");
  // A decoding long sequence needs no more than others do: 31 blocks, 26 for the newcomer's two chunks, and one.
  EXPECT_EQ(plan("kv", 58, true), "0:120+1* 1:0+7");
  EXPECT_EQ(plan("completed", 58, true), "0:120+1*");
}

// --- prompts that can no longer be kept ---

// At 2 ms the first prompt's millisecond is over: prompts that can still be kept go before it, although it has less
// slack.
TEST(SlackFillStep, AMissedPromptGoesBehindAllThatCanBeKept) {
  SlackBed waiting(Config(8));
  waiting.Waiting(8, {.slo = {kMs, 0, 0}});
  waiting.Waiting(8);
  EXPECT_EQ(waiting.Plan(2 * kMs), "1:0+8*");
  SlackBed running(Config(8));
  running.Prefilling(16, 8, {.slo = {kMs, 0, 0}});
  running.Prefilling(16, 8);
  EXPECT_EQ(running.Plan(2 * kMs), "1:8+8*");
  SlackBed mixed(Config(8));
  mixed.Prefilling(16, 8, {.slo = {kMs, 0, 0}});
  mixed.Waiting(8);
  EXPECT_EQ(mixed.Plan(2 * kMs), "1:0+8*");
}

// It is not urgent: a decode goes before it. A prompt that is late by its window but can still be kept is.
TEST(SlackFillStep, AMissedPromptIsNotUrgent) {
  for (const DurationNs ttft : {kMs, 2 * kMs}) {
    SlackBed bed(Config(8));
    bed.Decoding(4, 1);
    bed.Prefilling(40, 8, {.slo = {ttft, 0, 0}});
    EXPECT_EQ(bed.Plan(2 * kMs), ttft == kMs ? "0:4+1* 1:8+7" : "1:8+8");
  }
}

// 1 us per token: 40 tokens take 40 us even if no step computes anything else.
struct PerToken final : StepTimeModel {
  DurationNs StepTimeNs(const StepShape& shape) const override { return 1000 * std::max<int64_t>(16, shape.tokens()); }
  int32_t tile_tokens() const override { return 16; }
};
TEST(SlackFillStep, APromptThatCannotBeKeptHasMissedBeforeItsDueTime) {
  const PerToken model;
  for (const DurationNs left : {DurationNs{40'000}, DurationNs{39'999}}) {
    HarnessConfig c = Config(8);
    c.scheduler.limits.step_time = &model;
    SlackBed bed(c);
    bed.Waiting(40, {.slo = {kMs + left, 0, 0}});
    bed.Waiting(8, {.slo = {kHour, 0, 0}});
    EXPECT_EQ(bed.Plan(kMs), left == 40'000 ? "0:0+8" : "1:0+8*") << left << " ns left";
  }
}

// Missed prompts are not chosen by distance: they go in order, cut to the remaining budget.
TEST(SlackFillStep, MissedPromptsGoInOrder) {
  SlackBed bed(Config(8));
  bed.Waiting(5, {.slo = {kMs, 0, 0}});
  bed.Waiting(8, {.slo = {kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * kMs), "0:0+5* 1:0+3");
}

// A started missed prompt completes before another starts, even an older one: started, they would only hold KV.
TEST(SlackFillStep, AStartedMissedPromptCompletesBeforeTheNextStarts) {
  HarnessConfig c = Config(8);
  c.num_blocks = 200;  // room for the one that runs to go on
  SlackBed bed(c);
  bed.Waiting(4, {.slo = {kMs, 0, 0}});
  bed.Prefilling(30, 8, {.slo = {kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * kMs), "1:8+8");
  EXPECT_EQ(bed.Plan(3 * kMs), "1:16+8");
  EXPECT_EQ(bed.Plan(4 * kMs), "1:24+6* 0:0+2") << "the rest of its last step is used";
}

// That holds even for one that has its turn.
TEST(SlackFillStep, APromptInItsTurnWaitsForAStartedMissedOne) {
  HarnessConfig c = Config(8);
  *c.scheduler.limits.policy.Find<int64_t>("accelgen-missed-turn") = 1;
  SlackBed bed(c);
  bed.Waiting(4, {.slo = {kMs, 0, 0}});
  bed.Prefilling(30, 8, {.slo = {kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * kMs), "1:8+8");
  EXPECT_EQ(bed.Plan(3 * kMs), "1:16+8");
  EXPECT_EQ(bed.Plan(4 * kMs), "1:24+6*");
  EXPECT_EQ(bed.Plan(5 * kMs), "0:0+4* 1:30+1*");
}

// The KV that a missed long prompt will need does not hold back prompts that can still be kept.
TEST(SlackFillStep, ALongPromptDoesNotWaitForAMissedOne) {
  HarnessConfig c = Config(8);
  c.num_blocks = 54;  // one block less than both want
  c.max_model_len = 140;
  SlackBed bed(c);
  bed.Prefilling(120, 4, {.slo = {kMs, 0, 0}});
  bed.Waiting(100);
  EXPECT_EQ(bed.Plan(2 * kMs), "1:0+8");
}

// Once missed-turn steps have passed it over it goes first, running or waiting; an urgent decode keeps its token.
TEST(SlackFillStep, AMissedPromptGetsItsTurnAfterTheSetSteps) {
  for (const bool runs : {false, true}) {
    HarnessConfig c = Config(8);
    *c.scheduler.limits.policy.Find<int64_t>("accelgen-missed-turn") = 3;
    SlackBed bed(c);
    bed.Decoding(4, 1, {.max_output_tokens = 100, .slo = {0, kMs, 0}});
    runs ? bed.Prefilling(36, 8, {.slo = {kMs, 0, 0}}) : bed.Waiting(28, {.slo = {kMs, 0, 0}});
    bed.Waiting(100);
    std::vector<std::string> plans;
    for (int i = 0; i < 8; ++i) plans.push_back(bed.Plan((2 + i) * kMs));
    const std::string at = runs ? "1:8+7" : "1:0+7", then = runs ? "1:15+7" : "1:7+7";
    EXPECT_EQ(plans, (std::vector<std::string>{"0:4+1* 2:0+7", "0:5+1* 2:7+7", "0:6+1* 2:14+7", at + " 0:7+1*",
                                               "0:8+1* 2:21+7", "0:9+1* 2:28+7", "0:10+1* 2:35+7", then + " 0:11+1*"}))
        << (runs ? "running" : "waiting");
  }
}

// Under another order the head of the queue has the turn: ERA alone would hold the long one back while a long one runs.
TEST(SlackFillStep, TheHeadOfAnyQueueHasItsTurn) {
  HarnessConfig c = Completed(8);
  c.scheduler.preset = "accelgen-no-order";
  *c.scheduler.limits.policy.Find<int64_t>("accelgen-missed-turn") = 2;
  SlackBed bed(c);
  bed.Decoding(120, 1);
  bed.Waiting(100, {.slo = {kMs, 0, 0}});
  EXPECT_EQ(bed.Plan(2 * kMs), "0:120+1*");
  EXPECT_EQ(bed.Plan(3 * kMs), "0:121+1*");
  EXPECT_EQ(bed.Plan(4 * kMs), "1:0+8");
}

// If it does not fit then, nothing else starts: freed KV goes to it.
TEST(SlackFillStep, APromptInItsTurnHoldsBackTheQueue) {
  HarnessConfig c = Config(64);
  *c.scheduler.limits.policy.Find<int64_t>("accelgen-missed-turn") = 1;
  c.num_blocks = 8;
  c.max_model_len = 32;
  SlackBed bed(c);
  bed.Decoding(13, 1, {.max_output_tokens = 4});                  // four blocks of eight
  bed.Waiting(24, {.max_output_tokens = 1, .slo = {kMs, 0, 0}});  // six
  bed.Waiting(3, {.max_output_tokens = 1});                       // one
  EXPECT_EQ(bed.Plan(2 * kMs), "0:13+1* 2:0+3*");
  bed.Waiting(3, {.max_output_tokens = 1});
  EXPECT_EQ(bed.Plan(3 * kMs), "0:14+1*") << "the newcomer would fit";
}

// No start beside a preemption by decodes: two decodes need a block each, one is preempted, and its blocks are not for
// the queue.
TEST(SlackFillStep, NothingStartsInAStepThatPreempted) {
  HarnessConfig c = Config(64);
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Decoding(7, 2, {.max_output_tokens = 9});
  bed.Decoding(7, 2, {.max_output_tokens = 9, .slo = {0, 2 * kHour, 0}});
  bed.Waiting(1, {.max_output_tokens = 2});
  EXPECT_EQ(bed.Plan(), "!1 0:8+1*");
}

// A preempted sequence starts again only if all that it has to compute fits and each running sequence keeps a block to
// continue.
TEST(SlackFillStep, APreemptedSequenceStartsOnlyIfAllCanContinue) {
  for (const int64_t blocks : {5, 6}) {
    HarnessConfig c = Config(64);
    c.scheduler.admission = "chunk-fits";
    c.num_blocks = blocks;
    c.max_model_len = 20;
    SlackBed bed(c);
    bed.Preempted(7, 1, {.max_output_tokens = 8});  // eight tokens: two blocks
    bed.Decoding(9, 1, {.max_output_tokens = 4});   // three blocks
    EXPECT_EQ(bed.Plan(), blocks == 6 ? "0:0+8* 1:9+1*" : "1:9+1*") << blocks;
  }
}

// If none runs it starts with any number of blocks left.
TEST(SlackFillStep, APreemptedSequenceStartsIfNoneRuns) {
  HarnessConfig c = Config(64);
  c.num_blocks = 2;
  c.max_model_len = 8;
  SlackBed bed(c);
  bed.Preempted(7, 1, {.max_output_tokens = 1});
  EXPECT_EQ(bed.Plan(), "0:0+8*");
}

// A sequence's note has the time since which it is passed over, until its next token: its slack falls meanwhile.
TEST(SlackFillStep, TheNoteHasTheTimeSinceASequenceSitsOut) {
  SlackBed bed(Config(8));
  const SlotId decode = bed.Decoding(4, 1, {.slo = {0, 5 * kMs, 0}});
  bed.Prefilling(60, 8, {.slo = {5 * kMs, 0, 0}});  // late by its window from the start, and not missed until 5 ms
  EXPECT_EQ(bed.Plan(2 * kMs), "1:8+8");
  EXPECT_EQ(bed.Note<core::SlackNote>(decode)->passed_over_ns, 2 * kMs);
  EXPECT_EQ(bed.Plan(4 * kMs), "1:16+8");  // 5 - 2 - 1 ms of slack
  EXPECT_EQ(bed.Note<core::SlackNote>(decode)->passed_over_ns, 2 * kMs) << "since the first time";
  EXPECT_EQ(bed.Plan(5 * kMs), "1:24+7 0:4+1*");  // 1 ms: urgent
  EXPECT_EQ(bed.Note<core::SlackNote>(decode)->passed_over_ns, 0);
}

// A sequence that loses its KV in the step was not passed over.
TEST(SlackFillStep, AVictimWasNotPassedOver) {
  HarnessConfig c = Config(64);
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Decoding(7, 2, {.max_output_tokens = 9});
  const SlotId victim = bed.Decoding(7, 2, {.max_output_tokens = 9, .slo = {0, 2 * kHour, 0}});
  EXPECT_EQ(bed.Plan(7 * kMs), "!1 0:8+1*");
  EXPECT_EQ(bed.Note<core::SlackNote>(victim)->passed_over_ns, 0);
}

// Within gamma (here 1 ms) of the least slack, inclusive, the best-fitting candidate is chosen; beyond it the next in
// line is cut to the remaining budget.
TEST(SlackFillStep, GammaIncludesItsEnd) {
  for (const DurationNs beyond : {0, 1}) {
    HarnessConfig c = Config(8);
    c.scheduler.limits.policy.Find<DurationText>("accelgen-gamma")->ns = kMillisecond;
    SlackBed bed(c);
    bed.Waiting(5, {.slo = {kHour, 0, 0}});
    bed.Waiting(8, {.slo = {kHour + kMs + beyond, 0, 0}});
    EXPECT_EQ(bed.Plan(), beyond == 0 ? "1:0+8*" : "0:0+5* 1:0+3") << beyond << " ns beyond";
  }
}

// A continuing prompt takes no more KV than there is: one block is free.
TEST(SlackFillStep, AChunkIsCutToTheKvThatIsLeft) {
  HarnessConfig c = Config(64);
  c.num_blocks = 4;
  c.max_model_len = 16;
  SlackBed bed(c);
  bed.Decoding(5, 1, {.max_output_tokens = 2});
  bed.Prefilling(16, 3, {.max_output_tokens = 1});
  EXPECT_EQ(bed.Plan(), "0:5+1* 1:3+5") << "one position is left in its block, and four in the free one";
}

// Any share of a step settles a job's slack: of a decode, of a continuing prompt, of a starting one.
TEST(SlackFillStep, EveryKindOfShareSettlesAJobsSlack) {
  SlackBed bed(Config(64));
  const Slo job{0, 0, kHour};
  for (const SlotId slot :
       {bed.Decoding(4, 1, {.slo = job}), bed.Prefilling(8, 4, {.slo = job}), bed.Waiting(4, {.slo = job})}) {
    EXPECT_EQ(bed.Note<core::SlackNote>(slot)->carry_ns, 0);
  }
  const std::string plan = bed.Plan(kMs);
  ASSERT_EQ(bed.planned().num_tokens, 1 + 4 + 4) << plan;
  for (const SlotId slot : {0, 1, 2}) {
    const core::SlackNote& note = *bed.Note<core::SlackNote>(slot);
    EXPECT_EQ(note.carry_ns, note.jct_share_ns - (slot == 2 ? kMs : 0))
        << "slot " << slot << ": its share, less its wait";
    EXPECT_GT(note.carry_ns, 0);
  }
}

// First come, first served; counts how often the queue is read.
struct CountedQueue final : core::Order {
  explicit CountedQueue(int* times) : times_read(times) {}
  void Apply(const core::StepView&) override {}
  void Rebuild(const core::StepView&) override {}
  void Start(const core::StepView& view) override {
    ++*times_read;
    slots.assign(view.waiting.begin(), view.waiting.end());
    std::sort(slots.begin(), slots.end(), [&view](SlotId a, SlotId b) { return FirstCome(view, a, b); });
    next = 0;
  }
  SlotId Next() override { return next < slots.size() ? slots[next++] : kNoSlot; }
  bool Before(const core::StepView& view, SlotId a, SlotId b) const override { return FirstCome(view, a, b); }
  static bool FirstCome(const core::StepView& view, SlotId a, SlotId b) {
    return view.seq.arrival_order[a] < view.seq.arrival_order[b];
  }
  int* times_read;
  std::vector<SlotId> slots;
  size_t next = 0;
};

// A queue of which no sequence can start is not read, whatever its length: no place or no KV is left.
TEST(SlackFillStep, AQueueWithoutPossibleStartsIsNotRead) {
  const auto read = [](int32_t places, int64_t blocks, int waiting) {
    int times = 0;
    HarnessConfig c = Config(64);
    c.max_num_seqs = places;
    c.num_blocks = blocks;
    c.max_model_len = 8;
    core::InjectedChoices injected;
    injected.order = std::make_unique<CountedQueue>(&times);
    SlackBed bed(c, std::move(injected));
    bed.Decoding(5, 1, {.max_output_tokens = 2});  // two blocks of four
    for (int i = 0; i < waiting; ++i) bed.Waiting(3, {.max_output_tokens = 1});
    const std::string plan = bed.Plan();
    EXPECT_EQ(plan, times == 0 ? "0:5+1*" : "0:5+1* 1:0+3*") << places << " places, " << blocks << " blocks";
    return times;
  };
  EXPECT_EQ(read(2, 8, 1), 1);
  EXPECT_EQ(read(1, 8, 1), 0) << "no place is left";
  EXPECT_EQ(read(2, 2, 1), 0) << "no block is left";
  EXPECT_EQ(read(2, 8, 0), 0) << "none waits";
}

// Decodes that are not urgent run before prompts are chosen: the second prompt takes all of the remaining 7 tokens.
TEST(SlackFillStep, DecodesRunBeforePromptsAreChosen) {
  SlackBed bed(Config(8));
  bed.Decoding(4, 1);
  bed.Waiting(5);
  bed.Waiting(7);
  EXPECT_EQ(bed.Plan(), "0:4+1* 2:0+7*");
}

// First come, first served; counts the calls of Next.
class CountingOrder final : public core::Order {
 public:
  explicit CountingOrder(int* asked) : asked_(asked) {}
  void Apply(const core::StepView& view) override { Rebuild(view); }
  void Rebuild(const core::StepView& view) override {
    queue_.assign(view.waiting.begin(), view.waiting.end());
    std::sort(queue_.begin(), queue_.end(),
              [&](SlotId a, SlotId b) { return view.seq.arrival_order[a] < view.seq.arrival_order[b]; });
  }
  void Start(const core::StepView&) override { next_ = 0; }
  SlotId Next() override {
    ++*asked_;
    return next_ < queue_.size() ? queue_[next_++] : kNoSlot;
  }
  bool Before(const core::StepView& view, SlotId a, SlotId b) const override {
    return view.seq.arrival_order[a] < view.seq.arrival_order[b];
  }

 private:
  int* const asked_;
  std::vector<SlotId> queue_;
  size_t next_ = 0;
};

// The queue is read ahead by no more than has been tried: a step that needs little of it costs little.
TEST(SlackFillStep, ReadsTheQueueNoFurtherAheadThanItHasTried) {
  int asked = 0;
  core::InjectedChoices injected;
  injected.order = std::make_unique<CountingOrder>(&asked);
  SlackBed bed(Config(8), std::move(injected));
  for (int i = 0; i < 40; ++i) bed.Waiting(8, {.slo = {(10 + i) * kSecond, 0, 0}});  // one within gamma of the first
  EXPECT_EQ(bed.Plan(), "0:0+8*");
  EXPECT_LE(asked, 4) << "two of 40 are tried, with " << asked << " calls of Next";
}
TEST(SlackFillStep, ReadsTheQueueOnceToItsEnd) {
  int asked = 0;
  core::InjectedChoices injected;
  injected.order = std::make_unique<CountingOrder>(&asked);
  HarnessConfig c = Config(400);
  c.max_num_seqs = 32;
  c.num_blocks = 200;
  SlackBed bed(c, std::move(injected));
  for (int i = 0; i < 20; ++i) bed.Waiting(8);
  bed.Plan();
  EXPECT_EQ(bed.planned().items.size(), 20u);
  EXPECT_EQ(asked, 21) << "20 wait; one more call returns the end";
}

}  // namespace
}  // namespace tactus::slack_fill_step_test
