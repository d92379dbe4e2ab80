// The tactus preset's choices: single steps on hand-made views, against plans computed by hand from the model; its
// bounds on starvation; that it plans as sarathi-serve if no request has an objective.
#include <gtest/gtest.h>

#include "base/background.h"
#include "base/rng.h"
#include "base/step_shape.h"
#include "core/sched/known_lengths.h"
#include "core/sched/promise/promise.h"
#include "core/sched/step_bed.h"

namespace tactus::promise_test {
namespace {

using core::PromiseClock;
using core::PromiseNote;
using core::SchedulerLimits;
using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::KnownLengths;
using testing::PresetConfig;
using testing::StepBed;

constexpr DurationNs kMs = kMillisecond;

// 1 ms + 0.1 ms per token + 10 us per context token of decodes and chunks. Throughput is within 3 % of the best from
// 320 tokens on, which take 33 ms: 0.103125 ms each.
class KnownSteps final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& s) const override {
    int64_t read = s.decode_context_tokens;
    for (const ChunkShape& c : s.chunks) read += c.context_tokens;
    return kMs + 100 * kMicrosecond * s.tokens() + 10 * kMicrosecond * read;
  }
};

struct Promise : ::testing::Test {
  Promise() {
    config = PresetConfig("tactus");
    config.num_blocks = 4000;
    config.block_size = 16;
    config.max_model_len = 8192;
    config.max_num_seqs = 64;
    config.predictor = &lengths;
    limits().step_time = &model;
    limits().tbt_slo_ns = kAutoDuration;
  }
  SchedulerLimits& limits() { return config.scheduler.limits; }

  KnownSteps model;
  KnownLengths lengths{{32}};
  HarnessConfig config;
};

core::SequenceSpec Ttft(DurationNs ttft_ns) {
  return {.slo = {ttft_ns, 0, 0}};
}
core::SequenceSpec Tbt(DurationNs tbt_ns) {
  return {.slo = {0, tbt_ns, 0}};
}
// A prompt longer than any step, and two behind it, so that more wait than the few for which the budget shortens steps.
SlotId QueueOfPrompts(StepBed& bed, int32_t tokens = 4000) {
  const SlotId first = bed.Waiting(tokens, Ttft(9000 * kMs));
  for (int i = 0; i < 2; ++i) bed.Waiting(tokens, Ttft(9900 * kMs));
  return first;
}

// --- order ---

// Sequences that can be kept go by due time, then those that cannot by arrival, then best effort. 100 tokens take 10.3
// ms.
TEST_F(Promise, RequestsGoByDueTimeAndBestEffortLast) {
  StepBed bed(config);
  bed.Waiting(10);                   // best effort
  bed.Waiting(100, Ttft(10 * kMs));  // cannot be kept
  bed.Waiting(10, Ttft(900 * kMs));
  bed.Waiting(10, Ttft(500 * kMs));
  bed.Waiting(100, Ttft(5 * kMs));  // cannot be kept either
  EXPECT_EQ(bed.Plan(), "3:0+10* 2:0+10* 1:0+100* 4:0+100* 0:0+10*");
}

// With and without objectives; preempted sequences go before the rest of their kind.
TEST_F(Promise, BackgroundWorkStartsWhenNothingElseWaits) {
  const core::SequenceSpec background{.priority = kBackgroundPriority};
  StepBed bed(config);
  bed.Waiting(10, background);
  bed.Waiting(20);
  bed.Waiting(30, background);
  bed.Waiting(40, {.priority = kBackgroundPriority - 1});  // no other priority counts
  EXPECT_EQ(bed.Plan(), "1:0+20* 3:0+40* 0:0+10* 2:0+30*");
  StepBed stated(config);
  stated.Waiting(10, background);
  stated.Waiting(20);
  stated.Waiting(30, Ttft(900 * kMs));
  EXPECT_EQ(stated.Plan(), "2:0+30* 1:0+20* 0:0+10*");
}

// A started prompt is merged with the waiting ones by due time.
TEST_F(Promise, AStartedPromptWaitsForPromptsDueEarlier) {
  StepBed bed(config);
  bed.Prefilling(100, 50, Ttft(900 * kMs));
  bed.Prefilling(100, 50);
  bed.Waiting(10, Ttft(500 * kMs));
  EXPECT_EQ(bed.Plan(), "2:0+10* 0:50+50* 1:50+50*");
}

// Three prompts are due within 100 ms, and 1,200 tokens take 120: the longest is put off, and the other two are in
// time. Without the rule only the first would be.
TEST_F(Promise, TheLongestPromptIsPutOffIfNotAllCanBeKept) {
  StepBed bed(config);
  bed.Waiting(600, Ttft(97 * kMs));
  bed.Waiting(300, Ttft(98 * kMs));
  bed.Waiting(300, Ttft(99 * kMs));
  EXPECT_EQ(bed.Plan(), "1:0+300* 2:0+300* 0:0+600*");
  StepBed room(config);
  room.Waiting(600, Ttft(197 * kMs));
  room.Waiting(300, Ttft(198 * kMs));
  room.Waiting(300, Ttft(199 * kMs));
  EXPECT_EQ(room.Plan(), "0:0+600* 1:0+300* 2:0+300*");
}

// 600 tokens of a class of weight 4 count as 150.
TEST_F(Promise, AClassOfMoreWeightIsPutOffLater) {
  limits().classes = {{.name = "gold", .weight = 4}};
  StepBed bed(config);
  bed.Waiting(600, {.slo = {97 * kMs, 0, 0}, .service_class = 1});
  bed.Waiting(300, Ttft(98 * kMs));
  bed.Waiting(310, Ttft(99 * kMs));
  EXPECT_EQ(bed.Plan(), "0:0+600* 1:0+300* 2:0+310*");
}

// --- budget ---

// 1 + 0.1 + 1.01 ms leave 478 tokens of 0.1 ms in 50, to a multiple of 8 with the decode; the other stream would allow
// more.
TEST_F(Promise, TheTightestGapSizesTheStep) {
  StepBed bed(config);
  bed.Decoding(100, 1, Tbt(50 * kMs));
  bed.Decoding(100, 1, Tbt(90 * kMs));
  QueueOfPrompts(bed);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:100+1* 2:0+462");  // 1 + 2.02 + 46.4 ms
}

// 1,864 tokens take reading speed, 187.5 ms. The first waiting prompt needs 3,000 tokens of KV; 2,000 are for the other
// one. If fewer than 3,000 are left, a step of an eighth computes at least nine tenths as fast (240 in 25.1 ms), so it
// is no larger.
TEST_F(Promise, StepsStaySmallWhilePromptsWaitForKv) {
  for (const auto& [blocks, plan] : {std::pair<int64_t, const char*>(300, "0:8+240"), {313, "0:8+1864"}}) {
    config.num_blocks = blocks;
    StepBed bed(config);
    bed.Prefilling(2000, 8, Ttft(9000 * kMs));
    QueueOfPrompts(bed, 3000);
    EXPECT_EQ(bed.Plan(), plan) << blocks << " blocks of 16 tokens";
  }
}

// 240 tokens take 25.1 ms, 1,864 take 187.5: prompts advance nine tenths as fast, and an arriving one waits 25 ms at
// most. Beside three prompts an arrival would wait for those anyway, and a prompt that one step computes is not cut.
TEST_F(Promise, StepsStaySmallWhileFewPromptsWait) {
  for (const auto& [prompts, tokens, plan] : {std::tuple<int, int32_t, const char*>(1, 4000, "0:0+240"),
                                              {2, 4000, "0:0+240"},
                                              {3, 4000, "0:0+1864"},
                                              {1, 1800, "0:0+1800*"}}) {
    StepBed bed(config);
    for (int i = 0; i < prompts; ++i) bed.Waiting(tokens, Ttft(9000 * kMs));
    EXPECT_EQ(bed.Plan(), plan) << prompts << " prompts of " << tokens << " tokens";
  }
}

// The decodes and 32 tokens take more than 20 ms (1 + 0.2 + 20.02 + 3.2): the next shortest gap decides.
TEST_F(Promise, AGapThatNoStepKeepsIsIgnored) {
  StepBed bed(config);
  bed.Decoding(1000, 1, Tbt(20 * kMs));
  bed.Decoding(1000, 1, Tbt(50 * kMs));
  QueueOfPrompts(bed);
  EXPECT_EQ(bed.Plan(), "0:1000+1* 1:1000+1* 2:0+286");  // 1 + 20.02 + 28.8
}

// A stream that was late once limits steps to 187.5 ms.
TEST_F(Promise, ALateStreamLimitsStepsToReadingSpeed) {
  StepBed bed(config);
  const SlotId slot = bed.Decoding(100, 1, Tbt(50 * kMs));
  QueueOfPrompts(bed);
  bed.Note<PromiseNote>(slot)->broken = true;
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+1847");  // 1 + 1.01 + 184.8
}

// A late token is detected with the plan that first has it: here 75 ms after the one before.
TEST_F(Promise, ATooLongGapBreaksThePromise) {
  for (const TimeNs second : {50 * kMs, 75 * kMs}) {
    StepBed bed(config);
    const SlotId slot = bed.Decoding(100, 1, Tbt(50 * kMs));
    bed.Plan();
    bed.Plan(second);
    EXPECT_EQ(bed.Note<PromiseNote>(slot)->broken, second > 50 * kMs);
  }
}

// A job has 100 ms for 10 more tokens, so steps of 10 ms. It limits steps to no less than twice its own decode (1 + 0.1
// + 1.01 ms), which is shorter, so 10 ms apply.
TEST_F(Promise, AJobLimitsStepsToItsTimeLeftPerToken) {
  KnownLengths eleven{{11}};
  config.predictor = &eleven;
  StepBed bed(config);
  bed.Decoding(100, 1, {.slo = {0, 0, 100 * kMs}});
  QueueOfPrompts(bed);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+71");  // 1 + 1.01 + 7.2
}

// The decodes that must run take 1 + 0.2 + 22.02 ms. A job with 5 ms per token limits steps to no less than twice that,
// 46.44 ms, once a step has measured it.
TEST_F(Promise, AJobLeavesPromptsAsMuchTimeAsDecodes) {
  KnownLengths eleven{{11}};
  config.predictor = &eleven;
  StepBed bed(config);
  bed.Decoding(100, 1, {.slo = {0, 0, 50 * kMs}});
  bed.Decoding(2100, 1, Tbt(400 * kMs));
  bed.Plan();
  QueueOfPrompts(bed);
  bed.Plan();
  const double took_ms = 1 + 0.1 * (2 + bed.planned().items.back().count) + 0.01 * (102 + 2102);
  EXPECT_LE(took_ms, 46.5);
  EXPECT_GT(took_ms, 46.5 - 0.8) << "more than a granule of 8 tokens short of it";
}

// If steps take longer than predicted, their predicted share of the gap shrinks; a simulation's steps take the
// predicted time. At 1.2 times the margin rises by eighths of 0.995, to 0.249, and falls slowly, so that one step in
// 200 is late. StepRecord::predicted_ns is ignored, since a replay does not have it.
TEST_F(Promise, StepsThatRunLongerThanPredictedAddAMargin) {
  std::vector<ChunkShape> chunks;
  for (const double times : {1.0, 1.2}) {
    StepBed bed(config);
    bed.Decoding(100, 1, Tbt(50 * kMs));
    const auto plan = [&] {
      bed.Plan();
      return model.StepTimeNs(ShapeOf(bed.planned(), &chunks));
    };
    for (int i = 0; i < 20; ++i) {
      const SlotId prompt = bed.Waiting(8, Ttft(9000 * kMs));
      const auto took = static_cast<DurationNs>(times * static_cast<double>(plan()));
      bed.Ended({.step = bed.planned().step, .end_ns = took, .predicted_ns = 7, .prefill_tokens = 8});
      bed.End(prompt);
    }
    QueueOfPrompts(bed);
    const auto predicted_ms = static_cast<double>(plan()) / kMs;
    EXPECT_LE(predicted_ms, times == 1 ? 50 : 50 / 1.18);
    EXPECT_GE(predicted_ms, (times == 1 ? 50 : 50 / 1.25) - 0.8) << "more than a granule of 8 tokens short of it";
  }
}

// With two stages a short step, a long step of others and a long step of the stream make a gap of 1.5 long steps, so a
// step takes 2/3 of the gap: (33.3 - 1 - 1.01) / 0.1 = 313 tokens.
TEST_F(Promise, APipelineStepTakesAShareOfTheGap) {
  limits().pipeline_steps = 2;
  StepBed bed(config);
  bed.Decoding(100, 1, Tbt(50 * kMs));
  QueueOfPrompts(bed);
  EXPECT_EQ(bed.Plan(), "0:100+1* 1:0+311");
}

// --- best effort ---

// First tokens take 200 ms, so a twentieth is 10 ms, and the best-effort decode takes 1.1: it joins a step with only a
// stream. Beside a prompt that has no first token yet it sits out.
TEST_F(Promise, BestEffortAddsNothingBesideAPromptsFirstToken) {
  for (const bool prompt : {false, true}) {
    StepBed bed(config);
    const SlotId decode = bed.Decoding(100, 1);
    bed.Decoding(100, 1, {.slo = {900 * kMs, 50 * kMs, 0}});
    if (prompt) bed.Waiting(64, {.arrival_ns = 200 * kMs, .slo = {900 * kMs, 0, 0}});
    bed.Plan(200 * kMs);
    const auto& items = bed.planned().items;
    EXPECT_EQ(items.size(), 2u);
    EXPECT_EQ(std::any_of(items.begin(), items.end(), [=](const StepItem& it) { return it.slot == decode; }), !prompt);
  }
}

// A decode that sits out has its token within kLongestPause steps, however long that continues: of 50 that may sit out,
// one is in every step.
TEST_F(Promise, ADecodeIsLeftOutForABoundedTime) {
  config.num_blocks = 100000;
  StepBed bed(config);
  constexpr SlotId kLeftOut = 50;
  for (SlotId s = 0; s < kLeftOut; ++s) bed.Decoding(100, 1, {.max_output_tokens = 4000});
  const SlotId stream = bed.Decoding(100, 1, {.max_output_tokens = 4000, .slo = {1, 200 * kMs, 0}});
  bed.Note<PromiseNote>(stream)->tokens_seen = 0;
  std::vector<int64_t> pause(kLeftOut, 0);
  int64_t longest = 0;
  SlotId prompt = kNoSlot;
  for (int i = 1; i < 300; ++i) {
    if (prompt == kNoSlot || bed.table().columns().state[prompt] == core::SeqState::kDecode) {
      if (prompt != kNoSlot) bed.End(prompt);
      prompt = bed.Waiting(7000, {.arrival_ns = i * 10 * kMs, .slo = {9000 * kMs, 0, 0}});
    }
    bed.Plan(i * 10 * kMs);
    const auto& items = bed.planned().items;
    for (SlotId s = 0; s < kLeftOut; ++s) {
      const bool in = std::any_of(items.begin(), items.end(), [s](const StepItem& it) { return it.slot == s; });
      pause[static_cast<size_t>(s)] = in ? 0 : pause[static_cast<size_t>(s)] + 1;
      longest = std::max(longest, pause[static_cast<size_t>(s)]);
    }
  }
  EXPECT_LE(longest, core::kLongestPause) << "a decode starves beside an endless stream of prompts";
  EXPECT_GE(longest, core::kLongestPause / 2) << "no decode was left out long enough for the test to mean anything";
}

// The first token of the stream took 200 ms. A step with only the stream (1 + 0.1 + 1.02 ms) may become longer by a
// twentieth of that, 10 ms: 100 tokens, found to 16. With a backlog only by a third of itself.
TEST_F(Promise, BestEffortLengthensAStepByATwentiethOfTheTtftAndLessUnderABacklog) {
  for (const bool backlog : {false, true}) {
    StepBed bed(config);
    bed.Decoding(100, 1, {.slo = {900 * kMs, 50 * kMs, 0}});
    for (int i = 0; i < (backlog ? 66 : 1); ++i) bed.Waiting(2000, {.arrival_ns = 200 * kMs});
    bed.Plan(200 * kMs);
    const auto& items = bed.planned().items;
    const int32_t chunk = items.back().count;
    if (backlog) {
      EXPECT_EQ(items.size(), 1u) << "a granule of the search, 16 tokens, is more than a third of the stream's step";
    } else {
      EXPECT_LE(chunk, 100);
      EXPECT_GT(chunk, 100 - 16);
    }
  }
}

// A step is not empty, however little best effort may add, if no running sequence has an objective.
TEST_F(Promise, AStepThatOnlyHasBestEffortIsNeverEmpty) {
  StepBed bed(config);
  const SlotId stream = bed.Decoding(100, 1, {.slo = {900 * kMs, 50 * kMs, 0}});
  bed.Plan(kMicrosecond);  // the first token came after 1 us: best effort may add nothing
  bed.End(stream);
  bed.Waiting(2000);
  EXPECT_EQ(bed.Plan(kMs), "0:0+32");
  StepBed decode(config);
  const SlotId other = decode.Decoding(100, 1, {.slo = {900 * kMs, 50 * kMs, 0}});
  decode.Plan(kMicrosecond);
  decode.End(other);
  decode.Decoding(3000, 1);
  EXPECT_EQ(decode.Plan(kMs), "0:3000+1*");
}

// --- KV ---

// 20 blocks of 16 tokens hold two best-effort sequences. A prompt that can be kept takes the KV of the later one; a
// best-effort prompt waits.
TEST_F(Promise, BestEffortLosesItsKvToPromptsThatCanBeKept) {
  KnownLengths one{{1}};
  config.predictor = &one;
  config.num_blocks = 20;
  for (const bool states : {false, true}) {
    StepBed bed(config);
    bed.Decoding(150, 1);
    bed.Decoding(150, 1);
    bed.Waiting(64, states ? Ttft(900 * kMs) : core::SequenceSpec());
    EXPECT_EQ(bed.Plan().find("!1") != std::string::npos, states);
    const bool started = bed.table().columns().state[2] != core::SeqState::kWaiting;
    EXPECT_EQ(started, states);
  }
}

// 20 blocks, of which 10 are taken. 128 tokens need 8, and an answer of 32 two more: they just fit. With one answer
// token more the prompt waits for the running sequence, while any sequence has an objective.
TEST_F(Promise, AStartLeavesRoomForItsAnswer) {
  config.num_blocks = 20;
  for (const int32_t answer : {32, 33}) {
    KnownLengths known{{answer}};
    config.predictor = &known;
    for (const bool states : {false, true}) {
      StepBed bed(config);
      bed.Decoding(150, 1, {.max_output_tokens = 64, .slo = {0, states ? 500 * kMs : 0, 0}});
      bed.Waiting(128, {.max_output_tokens = 64, .slo = {states ? 900 * kMs : 0, 0, 0}});
      bed.Plan();
      const bool started = bed.table().columns().state[1] != core::SeqState::kWaiting;
      EXPECT_EQ(started, answer == 32 || !states) << answer << " tokens";
    }
  }
}

// --- starvation ---

// An endless stream of requests that can be kept, more than the machine can serve. Best-effort requests and those that
// cannot be kept have their turns in order of arrival: promise-turn steps after the answer of the one before.
TEST(PromiseTurn, BrokenAndBestEffortRequestsStartAfterABoundedTime) {
  constexpr int kTurn = 8;
  // Also if some of those that can be kept go first for their class's share.
  for (const double share : {0.0, 0.8}) {
    HarnessConfig c = PresetConfig("tactus", 8);
    *c.scheduler.limits.policy.Find<int64_t>("promise-turn") = kTurn;
    c.scheduler.limits.classes = {{.name = "report", .share = share}};
    c.max_queue = 1000;
    c.num_blocks = 400;
    KnownSteps model;
    c.scheduler.limits.step_time = &model;
    Harness h(c);
    std::vector<RequestHandle> waits;
    AddRequest(&h, 8, 1, [](Request* r) { r->slo = {3600 * kSecond, 0, 0}; });
    for (int i = 0; i < 6; ++i) {
      AddRequest(&h, 8, 1, [i](Request* r) { r->slo = {i % 2 == 0 ? 1 : 0, 0, 0}; });
      waits.push_back(h.handles().back());
    }
    const TimeNs came = h.clock().NowNs();
    for (int step = 0; step < 14 * kTurn; ++step) {
      for (int i = 0; i < 2; ++i)
        AddRequest(&h, 6, 1, [i](Request* r) {
          r->slo = {3600 * kSecond, 0, 0};
          r->slo_class = i == 0 ? "report" : "";
        });
      ASSERT_EQ(h.Settle(), "");
      ASSERT_TRUE(h.Advance());
    }
    for (int i = 0; i < 6; ++i) {
      const testing::RequestOutput& out = h.outputs()[waits[static_cast<size_t>(i)]];
      ASSERT_TRUE(out.done) << "request " << i << " starves, share " << share;
      const int64_t waited = (out.done_event.scheduled_ns - came) / kMs;
      EXPECT_GE(waited, (i + 1) * kTurn) << "request " << i << " goes before those that can be kept";
      // Requests that go first for a share take part of the steps of a turn.
      EXPECT_LE(waited, (i + 1) * (kTurn + (share > 0 ? 6 : 2))) << "request " << i;
    }
  }
}

// --- determinism ---

struct Plans {
  std::vector<uint64_t> hashes;
  std::string broken;
};

Plans PlansOf(const std::string& preset, uint64_t seed, bool objectives, bool fresh, const StepTimeModel* model) {
  Rng rng(seed);
  HarnessConfig c = PresetConfig(preset);
  c.scheduler.limits.step_time = model;
  c.scheduler.limits.tbt_slo_ns = kAutoDuration;
  *c.scheduler.limits.policy.Find<int64_t>("promise-turn") = 4;
  c.num_blocks = 20;
  c.max_model_len = 48;
  c.fresh_policies = fresh;
  c.executor.max_in_flight = seed % 3 == 0 ? 2 : 1;
  Harness h(c);
  Plans plans;
  for (int i = 0; i < 40 && plans.broken.empty(); ++i) {
    const auto prompt = static_cast<int32_t>(rng.UniformInt(1, 24));
    const Slo slo{rng.UniformInt(0, 20) * kMs, rng.UniformInt(0, 6) * kMs, rng.UniformInt(0, 3) * 40 * kMs};
    const bool states = objectives && rng.Uniform() < 0.7;
    AddRequest(&h, prompt, rng.UniformInt(1, 20), [&](Request* r) { r->slo = states ? slo : Slo(); });
    plans.broken = h.Settle();
    if (rng.Uniform() < 0.5) h.Advance();
  }
  if (plans.broken.empty()) plans.broken = h.Run();
  plans.hashes = *h.loop().plan_hashes();
  return plans;
}

// Makes a fresh instance of every policy before each pass: all their state is in the view.
TEST(PromisePlans, AFreshInstanceMakesTheSamePlans) {
  const KnownSteps model;
  for (const StepTimeModel* times :
       {static_cast<const StepTimeModel*>(nullptr), static_cast<const StepTimeModel*>(&model)}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const Plans once = PlansOf("tactus", seed, true, false, times),
                  fresh = PlansOf("tactus", seed, true, true, times);
      ASSERT_EQ(once.broken + fresh.broken, "") << "seed " << seed;
      EXPECT_EQ(once.hashes, fresh.hashes) << "seed " << seed;
    }
  }
}

// Without objectives the preset equals sarathi-serve, plan by plan, with KV short or not.
TEST(PromisePlans, WithoutObjectivesPlansAreThoseOfSarathiServe) {
  const KnownSteps model;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Plans ours = PlansOf("tactus", seed, false, false, &model);
    const Plans theirs = PlansOf("sarathi-serve", seed, false, false, &model);
    ASSERT_EQ(ours.broken + theirs.broken, "") << "seed " << seed;
    EXPECT_EQ(ours.hashes, theirs.hashes) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tactus::promise_test
