// Requests with several choices, and errors in a row: figures of the whole request, with times calculated by hand. A
// step of the fake executor takes 1 ms and 10 us per token.
#include <gtest/gtest.h>

#include "core/loop/harness.h"

namespace tactus::core {
namespace {

using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Tokens;

constexpr TimeNs Step(int32_t tokens) {
  return kMillisecond + tokens * 10 * kMicrosecond;
}

Request TwoChoices() {
  Request r = MakeRequest(Tokens(1, 10), 4);
  r.n = 2;
  return r;
}

// Choice 0 gets its first token after the prompt's step; choice 1, which forks from it, one step later.
TEST(Choices, FirstTokenIsThatOfTheFirstChoice) {
  HarnessConfig config;
  Harness h(config);
  const TimeNs start = h.clock().NowNs();
  const RequestHandle id = h.MustSubmit(TwoChoices());
  ASSERT_EQ(h.Run(), "");
  const auto& out = h.outputs()[id];
  ASSERT_EQ(out.choices[0].token_ns.size(), 4u);
  ASSERT_EQ(out.choices[1].token_ns.size(), 4u);
  EXPECT_EQ(out.choices[0].token_ns[0], start + Step(10));
  EXPECT_GT(out.choices[1].token_ns[0], out.choices[0].token_ns[0])
      << "test setup: choices must start one after the other";
  EXPECT_EQ(out.done_event.first_token_ns, out.choices[0].token_ns[0]);
  EXPECT_EQ(out.done_event.scheduled_ns, start) << "the start of the first choice";
  EXPECT_EQ(out.done_event.arrival_ns, start);
  EXPECT_EQ(out.done_event.done_ns, out.choices[1].token_ns[3]);
}

TEST(Choices, PromptCountsOnceAndOutputsAreSummed) {
  HarnessConfig config;
  Harness h(config);
  Request r = MakeRequest(Tokens(1, 10), 4);
  r.n = 3;
  const RequestHandle id = h.MustSubmit(r);
  ASSERT_EQ(h.Run(), "");
  const RequestDoneEvent& done = h.outputs()[id].done_event;
  EXPECT_EQ(done.prompt_tokens, 10);
  EXPECT_EQ(done.cached_tokens, 0) << "sharing with siblings is no cache hit";
  EXPECT_EQ(done.completion_tokens, 3 * 4);
  const EngineStats stats = h.loop().Stats();
  EXPECT_EQ(stats.prompt_tokens, 10) << "once per request, not once per choice";
  EXPECT_EQ(stats.generation_tokens, 3 * 4);
}

// The second token of choice 0 shares its step with a long prompt. Choice 1 gets its first token in that step, has only
// short gaps and ends last.
TEST(Choices, LongestGapIsOverAllChoices) {
  HarnessConfig config;
  Harness h(config);
  Request request = TwoChoices();
  request.slo.tbt_ns = Step(102) - 1;  // only the gap of that step is late
  const RequestHandle id = h.MustSubmit(std::move(request));
  ASSERT_EQ(h.Settle(), "");
  h.MustSubmit(MakeRequest(Tokens(2, 100), 1));  // for the second step
  ASSERT_EQ(h.Run(), "");
  const auto& out = h.outputs()[id];
  std::vector<DurationNs> longest;
  for (const auto& choice : out.choices) {
    ASSERT_EQ(choice.token_ns.size(), 4u);
    DurationNs gap = 0;
    for (size_t i = 1; i < choice.token_ns.size(); ++i)
      gap = std::max(gap, choice.token_ns[i] - choice.token_ns[i - 1]);
    longest.push_back(gap);
  }
  ASSERT_EQ(longest[0], Step(102));
  ASSERT_LT(longest[1], longest[0]);
  ASSERT_GT(out.choices[1].token_ns[3], out.choices[0].token_ns[3]) << "test setup: the other choice must end last";
  EXPECT_EQ(out.done_event.longest_gap_ns, longest[0]) << "over all choices, not of the last one to end";
  EXPECT_EQ(out.done_event.gaps, 6);
  EXPECT_EQ(out.done_event.late_gaps, 1);
}

// One request at a time with one token each, so that each step is one whole request.
struct Errors {
  int64_t failed = 0;
  bool healthy = false;
  EngineStats stats;
};
Errors RunWithFaults(std::vector<InjectedFault> faults, int requests) {
  HarnessConfig config;
  config.max_num_seqs = 1;
  config.faults = std::move(faults);
  Harness h(config);
  for (int i = 0; i < requests; ++i) h.MustSubmit(MakeRequest(Tokens(static_cast<uint64_t>(i), 3), 1));
  EXPECT_EQ(h.Run(), "");
  Errors e;
  for (const auto& [id, out] : h.outputs()) e.failed += out.done_event.finish == FinishReason::kError;
  e.healthy = h.loop().healthy();
  e.stats = h.loop().Stats();
  return e;
}

TEST(ErrorsInARow, GoodStepResetsTheErrorCount) {
  const Errors e = RunWithFaults({{0}, {1}, {3}, {4}}, 6);  // the limit is three in a row
  EXPECT_TRUE(e.healthy) << "error, error, good, error, error has no three in a row";
  EXPECT_TRUE(e.stats.healthy);
  EXPECT_EQ(e.failed, 4);
  EXPECT_EQ(e.stats.finished_error, 4);
  EXPECT_EQ(e.stats.finished_length, 2);
}

// A result with fewer token ids than announced is invalid; the loop invents no tokens.
TEST(ErrorsInARow, MissingTokensEndTheirRequest) {
  const Errors e = RunWithFaults({{1, InjectedFault::Kind::kNoTokens}}, 3);
  EXPECT_TRUE(e.healthy) << "the step itself was good";
  EXPECT_EQ(e.failed, 1);
  EXPECT_EQ(e.stats.finished_length, 2);
}

TEST(ErrorsInARow, ThreeErrorsAfterAGoodStepEndEverything) {
  const Errors e = RunWithFaults({{0}, {1}, {3}, {4}, {5}}, 9);
  EXPECT_FALSE(e.healthy);
  EXPECT_EQ(e.stats.finished_length, 1) << "only the third request's step was good; none ran after the sixth";
  EXPECT_EQ(e.failed, 8);
}

}  // namespace
}  // namespace tactus::core
