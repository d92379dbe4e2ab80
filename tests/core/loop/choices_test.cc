// Requests with several choices, and errors in a row: what the request as a whole reports, with times worked out by
// hand. A step of the fake executor takes 1 ms and 10 us per token.
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

// Choice 0 has its first token after the prompt's step; choice 1, which forks from it, one step later.
TEST(Choices, TheRequestsFirstTokenIsThatOfTheFirstChoice) {
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
      << "the scene needs choices that start one after the other";
  EXPECT_EQ(out.done_event.first_token_ns, out.choices[0].token_ns[0]);
  EXPECT_EQ(out.done_event.scheduled_ns, start) << "the first choice's start, not the last one's";
  EXPECT_EQ(out.done_event.arrival_ns, start);
  EXPECT_EQ(out.done_event.done_ns, out.choices[1].token_ns[3]);
}

TEST(Choices, ThePromptIsCountedOnceAndAnswersAreSummed) {
  HarnessConfig config;
  Harness h(config);
  Request r = MakeRequest(Tokens(1, 10), 4);
  r.n = 3;
  const RequestHandle id = h.MustSubmit(r);
  ASSERT_EQ(h.Run(), "");
  const RequestDoneEvent& done = h.outputs()[id].done_event;
  EXPECT_EQ(done.prompt_tokens, 10);
  EXPECT_EQ(done.cached_tokens, 0) << "what a choice shares with its own siblings was not in the cache";
  EXPECT_EQ(done.completion_tokens, 3 * 4);
  const EngineStats stats = h.loop().Stats();
  EXPECT_EQ(stats.prompt_tokens, 10) << "once per request, not once per choice";
  EXPECT_EQ(stats.generation_tokens, 3 * 4);
}

// While choice 0 waits for its second token a long prompt shares the step; choice 1 gets its first one there and has
// short gaps only, and ends last.
TEST(Choices, TheLongestGapIsThatOfAnyChoice) {
  HarnessConfig config;
  Harness h(config);
  Request request = TwoChoices();
  request.slo.tbt_ns = Step(102) - 1;  // the gap of that step alone is late
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
  ASSERT_GT(out.choices[1].token_ns[3], out.choices[0].token_ns[3]) << "the scene needs the other choice to end last";
  EXPECT_EQ(out.done_event.longest_gap_ns, longest[0]) << "of all choices, not of the one that ends last";
  EXPECT_EQ(out.done_event.gaps, 6);
  EXPECT_EQ(out.done_event.late_gaps, 1);
}

// One request of one token per step, so that each step is one request's whole life.
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

TEST(ErrorsInARow, AGoodStepBetweenThemKeepsTheEngineHealthy) {
  const Errors e = RunWithFaults({{0}, {1}, {3}, {4}}, 6);  // three in a row are the limit
  EXPECT_TRUE(e.healthy) << "error, error, good, error, error is never three in a row";
  EXPECT_TRUE(e.stats.healthy);
  EXPECT_EQ(e.failed, 4);
  EXPECT_EQ(e.stats.finished_error, 4);
  EXPECT_EQ(e.stats.finished_length, 2);
}

// An executor that names tokens which it does not give has not answered: no token is made up for it.
TEST(ErrorsInARow, TokensThatAreNotThereEndTheirRequest) {
  const Errors e = RunWithFaults({{1, InjectedFault::Kind::kNoTokens}}, 3);
  EXPECT_TRUE(e.healthy) << "the step itself was good";
  EXPECT_EQ(e.failed, 1);
  EXPECT_EQ(e.stats.finished_length, 2);
}

TEST(ErrorsInARow, ThreeAfterAGoodStepEndEverything) {
  const Errors e = RunWithFaults({{0}, {1}, {3}, {4}, {5}}, 9);
  EXPECT_FALSE(e.healthy);
  EXPECT_EQ(e.stats.finished_length, 1) << "the third request's step was good, none after the sixth ran";
  EXPECT_EQ(e.failed, 8);
}

}  // namespace
}  // namespace tactus::core
