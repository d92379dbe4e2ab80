// Each cause of a timeline, to the microsecond, in a hand-made run: a step of the fake executor takes 1 ms and 10 us
// per token.
#include "core/loop/timelines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/loop/harness.h"
#include "core/loop/sequence_line.h"

namespace tactus::core {
namespace {

using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Tokens;

// "queue 1000 prefill 1100": causes and microseconds of one choice.
std::string TextOf(const SequenceTimeline& s) {
  std::string text;
  for (const TimelineSegment& g : s.segments)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : " ", CauseName(g.cause), (g.to_ns - g.from_ns) / 1000,
                        g.mixed ? "~" : "");
  return text;
}

class TimelinesTest : public ::testing::Test {
 protected:
  static HarnessConfig Config(const std::string& preset = "sarathi-serve", int64_t budget = 64) {
    HarnessConfig c;
    c.scheduler.preset = preset;
    c.scheduler.limits.token_budget = budget;
    c.prefix_caching = false;
    return c;
  }
  // Submits before the next pass, with its own arrival time.
  static RequestHandle Submit(Harness* h, int32_t prompt, int64_t max_tokens, int32_t n = 1, Slo slo = {}) {
    Request r = MakeRequest(Tokens(static_cast<uint64_t>(h->handles().size()) + 1, prompt), max_tokens);
    r.n = n;
    r.slo = slo;
    r.stop.ignore_eos = true;
    return h->MustSubmit(std::move(r));
  }
  static void Wait(Harness* h, DurationNs us) {
    ASSERT_EQ(h->Settle(), "");
    h->clock().AdvanceTo(h->clock().NowNs() + us * 1000);
  }
  static std::string Of(Harness* h, RequestHandle handle, size_t choice = 0) {
    const auto found = h->loop().Timelines({.handle = handle});
    return found.size() == 1 ? TextOf(found[0].sequences.at(choice)) : "there is none";
  }
};

TEST_F(TimelinesTest, LoneRequestOnlyComputes) {
  Harness h(Config());
  const RequestHandle a = Submit(&h, 10, 3);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "prefill 1100 decode 2020");
  const RequestTimeline t = h.loop().Timelines({.handle = a})[0];
  EXPECT_EQ(t.sequences[0].segments[0].steps, 1);
  EXPECT_EQ(t.sequences[0].segments[1].steps, 2);
  EXPECT_EQ(t.sequences[0].ttft_ns, 1100 * kMicrosecond);
  EXPECT_EQ(t.sequences[0].longest_gap_ns, 1010 * kMicrosecond);
  EXPECT_EQ(t.sequences[0].longest_gap_cause, Cause::kDecode);
  EXPECT_EQ(t.sequences[0].prefill_beside_others_ns, 0);
}

TEST_F(TimelinesTest, TimeBeforeTheLoopIsIntake) {
  Harness h(Config());
  const RequestHandle a = Submit(&h, 10, 1);
  h.clock().AdvanceTo(h.clock().NowNs() + 70 * kMicrosecond);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "intake 70 prefill 1100");
}

TEST_F(TimelinesTest, WaitDuringAStepIsInFlight) {
  Harness h(Config());
  const RequestHandle a = Submit(&h, 10, 3);
  Wait(&h, 300);
  const RequestHandle b = Submit(&h, 20, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "prefill 1100 decode 2220") << "its second token shares the step with b's prompt";
  EXPECT_EQ(Of(&h, b), "in_flight 800 prefill 1210");
  // One of the step's 21 tokens was of another request.
  EXPECT_EQ(h.loop().Timelines({.handle = b})[0].sequences[0].prefill_beside_others_ns, 1210 * kMicrosecond / 21);
}

TEST_F(TimelinesTest, WaitForAPlaceIsPlacesOrQueue) {
  HarnessConfig c = Config();
  c.max_num_seqs = 1;
  Harness h(c);
  const RequestHandle a = Submit(&h, 10, 3);
  Wait(&h, 100);
  const RequestHandle b = Submit(&h, 10, 2);
  const RequestHandle d = Submit(&h, 10, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "prefill 1100 decode 2020");
  EXPECT_EQ(Of(&h, b), "in_flight 1000 places 2020 prefill 1100 decode 1010");
  EXPECT_EQ(Of(&h, d), "in_flight 1000 queue 2020 places 2110 prefill 1100") << "b was ahead until it started";
}

TEST_F(TimelinesTest, WaitForTokensIsBudget) {
  Harness h(Config("sarathi-serve", 10));
  const RequestHandle a = Submit(&h, 30, 1);
  const RequestHandle b = Submit(&h, 10, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "prefill 3300");
  EXPECT_EQ(Of(&h, b), "budget 3300 prefill 1100");
  EXPECT_EQ(h.loop().Timelines({.handle = b})[0].sequences[0].segments[0].steps, 3);
}

TEST_F(TimelinesTest, WaitForBlocksIsKv) {
  HarnessConfig c = Config();
  c.num_blocks = 6;  // 24 positions
  Harness h(c);
  const RequestHandle a = Submit(&h, 16, 3);
  const RequestHandle b = Submit(&h, 16, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "prefill 1160 decode 2020");
  EXPECT_EQ(Of(&h, b), "kv 3180 prefill 1160");
}

TEST_F(TimelinesTest, PreemptionIsPreemptedAndRecompute) {
  HarnessConfig c = Config();
  c.num_blocks = 8;
  c.scheduler.limits.watermark = 0;
  Harness h(c);
  const RequestHandle a = Submit(&h, 12, 10);
  const RequestHandle b = Submit(&h, 12, 6);
  ASSERT_EQ(h.Run(), "");
  ASSERT_EQ(h.outputs()[b].done_event.preemptions, 1) << "test setup: there must be one";
  EXPECT_EQ(Of(&h, a), "prefill 1240 decode 9130");
  EXPECT_EQ(Of(&h, b), "prefill 1240 decode 4080 preempted 5050 recompute 1170");
}

TEST_F(TimelinesTest, StepsWithoutTheSequenceArePassedOver) {
  Harness h(Config("vllm-v0"));
  const RequestHandle a = Submit(&h, 10, 3);
  Wait(&h, 100);
  const RequestHandle b = Submit(&h, 10, 1);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "prefill 1100 passed_over 1100 decode 2020");
  const SequenceTimeline s = h.loop().Timelines({.handle = a})[0].sequences[0];
  EXPECT_EQ(s.segments[1].steps, 1);
  EXPECT_EQ(s.longest_gap_ns, 2110 * kMicrosecond);
  EXPECT_EQ(s.longest_gap_end_ns, 3210 * kMicrosecond);
  EXPECT_EQ(s.longest_gap_cause, Cause::kPassedOver) << "1100 of 2110";
  EXPECT_EQ(Of(&h, b), "in_flight 1000 prefill 1100");
}

// The sequence keeps its KV and is left out of steps while there is no block for its next token.
TEST_F(TimelinesTest, RunningSequenceWithoutABlockIsKv) {
  HarnessConfig c = Config("fastgen");
  c.num_blocks = 5;  // 20 positions
  Harness h(c);
  const RequestHandle a = Submit(&h, 8, 5);
  const RequestHandle b = Submit(&h, 8, 3);
  ASSERT_EQ(h.Run(), "");
  ASSERT_EQ(h.loop().Stats().preemptions, 0) << "it keeps its KV";
  EXPECT_EQ(Of(&h, a), "prefill 1160 decode 4040");
  EXPECT_EQ(Of(&h, b), "prefill 1160 kv 4040 decode 2020");
}

TEST_F(TimelinesTest, WaitForTheFirstChoiceIsSibling) {
  Harness h(Config());
  const RequestHandle a = Submit(&h, 10, 2, 2);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a, 0), "prefill 1100 decode 1020");
  EXPECT_EQ(Of(&h, a, 1), "sibling 1100 prefill 1020 decode 1010");
}

TEST_F(TimelinesTest, LiveTimelineEndsAtTheLastPass) {
  Harness h(Config());
  const RequestHandle a = Submit(&h, 10, 9);
  ASSERT_EQ(h.Settle(), "");
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(Of(&h, a), "prefill 1100 decode 1010");
  EXPECT_FALSE(h.loop().Timelines({.handle = a})[0].ended);
  EXPECT_EQ(h.loop().LiveHandles(), std::vector<RequestHandle>{a});
  h.Cancel(a);
  h.clock().AdvanceTo(h.clock().NowNs() + 500 * kMicrosecond);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(Of(&h, a), "prefill 1100 decode 1510") << "cancelled in its third step";
  EXPECT_EQ(h.loop().Timelines({.handle = a})[0].finish, FinishReason::kCancelled);
  EXPECT_TRUE(h.loop().LiveHandles().empty()) << "it has ended";
}

TEST_F(TimelinesTest, MissHasTheMostCostlyCause) {
  HarnessConfig c = Config();
  c.max_num_seqs = 1;
  Harness h(c);
  const Slo slo = {.ttft_ns = 2 * kMillisecond, .tbt_ns = 1000 * kMicrosecond, .jct_ns = 100 * kMillisecond};
  Submit(&h, 10, 3);
  const RequestHandle b = Submit(&h, 10, 3, 1, slo);
  ASSERT_EQ(h.Run(), "");
  const auto misses = h.outputs()[b].done_event.misses;
  EXPECT_TRUE(misses[0].missed);
  EXPECT_EQ(misses[0].cause, Cause::kPlaces);
  EXPECT_EQ(misses[0].cost_ns, (3120 + 1100 - 2000) * kMicrosecond) << "the cost is at most the lateness";
  EXPECT_TRUE(misses[1].missed);
  EXPECT_EQ(misses[1].cause, Cause::kDecode) << "one step is already longer";
  EXPECT_EQ(misses[1].cost_ns, 10 * kMicrosecond);
  EXPECT_FALSE(misses[2].missed);
}

TEST(Miss, WaitingCostsItsTimeAndComputingItsExcess) {
  std::array<DurationNs, kNumCauses> spent{};
  spent[static_cast<size_t>(Cause::kQueue)] = 30;
  spent[static_cast<size_t>(Cause::kPrefill)] = 100;
  EXPECT_FALSE(MissOf(spent, 130).missed);
  const Miss slow = MissOf(spent, 60);
  EXPECT_EQ(slow.cause, Cause::kPrefill) << "computing is 40 over, waiting was 30";
  EXPECT_EQ(slow.cost_ns, 40);
  const Miss waited = MissOf(spent, 90);
  EXPECT_EQ(waited.cause, Cause::kQueue);
  EXPECT_EQ(waited.cost_ns, 30);
  EXPECT_EQ(MissOf(spent, 120).cost_ns, 10) << "at most the lateness";
}

TEST(SequenceLine, MergesShortSegmentsAndKeepsTotals) {
  SequenceLine line;
  line.arrival_ns = line.since_ns = 5;
  TimeNs at = 5;
  std::array<DurationNs, kNumCauses> want{};
  for (int i = 0; i < 10000; ++i) {
    const Cause cause = i % 3 == 0 ? Cause::kPassedOver : i % 3 == 1 ? Cause::kDecode : Cause::kBudget;
    const DurationNs took = i == 5000 ? 1000000 : 1 + i % 7;
    at += took;
    want[static_cast<size_t>(cause)] += took;
    line.Account(cause, at, i + 1);
    ASSERT_LE(line.num_segments, Timelines::kMostSegments);
  }
  const SequenceTimeline shown = line.Show();
  EXPECT_EQ(shown.total_ns, want);
  EXPECT_EQ(shown.end_ns, at - 5);
  EXPECT_EQ(shown.segments.back().to_ns, at - 5);
  int64_t steps = 0, longest_ns = 0;
  for (const TimelineSegment& s : shown.segments) {
    steps += s.steps;
    longest_ns = std::max(longest_ns, s.to_ns - s.from_ns);
  }
  EXPECT_EQ(steps, 10000);
  EXPECT_LT(longest_ns, 1100000) << "the long segment was hardly merged";
}

TEST_F(TimelinesTest, LastEndedSequencesAreKept) {
  Harness h(Config());
  const int32_t more = 10;
  for (int32_t i = 0; i < Timelines::kKeptSequences + more; ++i) {
    Submit(&h, 4, 1);
    ASSERT_EQ(h.Run(), "");
  }
  EXPECT_EQ(h.loop().Timelines({.handle = static_cast<RequestHandle>(more)}).size(), 0u);
  EXPECT_EQ(h.loop().Timelines({.handle = static_cast<RequestHandle>(more + 1)}).size(), 1u);
  EXPECT_EQ(h.loop().Timelines({.handle = h.handles().back()}).size(), 1u);
}

TEST_F(TimelinesTest, OnlyTheLastEndedRequestIsKeptWhereNoneIsShown) {
  HarnessConfig config = Config();
  config.keep_timelines = false;
  Harness h(config);
  for (int32_t i = 0; i < 3; ++i) {
    Submit(&h, 4, 1);
    ASSERT_EQ(h.Run(), "");
  }
  EXPECT_EQ(h.loop().Timelines({.handle = h.handles()[1]}).size(), 0u);
  EXPECT_EQ(h.loop().Timelines({.handle = h.handles()[2]}).size(), 1u);
}

TEST_F(TimelinesTest, IdsAreFoundByOwner) {
  Harness h(Config());
  for (const char* owner : {"a", "b", "a"}) {
    Request r = MakeRequest(Tokens(1, 5), 1);
    r.id = "x";
    r.owner = owner;
    h.MustSubmit(std::move(r));
    h.clock().AdvanceTo(h.clock().NowNs() + 1);
  }
  ASSERT_EQ(h.Run(), "");
  const auto handle = [&](const char* owner) {
    const auto found = h.loop().Timelines({.id = "x", .owner = owner});
    return found.size() == 1 ? found[0].handle : 0;
  };
  EXPECT_EQ(handle("a"), h.handles()[2]) << "the newest";
  EXPECT_EQ(handle("b"), h.handles()[1]);
  Request prompt = MakeRequest(Tokens(1, 5), 1);
  prompt.id = "x-0";
  prompt.owner = "a";
  const RequestHandle of_another = h.MustSubmit(prompt);
  for (const char* id : {"y-0", "y-1", "y-1x", "y-", "y1"}) {
    prompt.id = id;
    h.MustSubmit(prompt);
  }
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(handle("a"), h.handles()[2]) << "a request's own id has priority over that of a prompt";
  EXPECT_EQ(h.loop().Timelines({.id = "x-0", .owner = "a"}).at(0).handle, of_another);
  const auto prompts = h.loop().Timelines({.id = "y", .owner = "a"});
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].id, "y-0");
  EXPECT_EQ(prompts[1].id, "y-1");
  EXPECT_EQ(handle("c"), 0u);
  EXPECT_EQ(handle(""), 0u);
}

}  // namespace
}  // namespace tactus::core
