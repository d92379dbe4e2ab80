#include "engine/step_loop.h"

#include <gtest/gtest.h>

#include "engine/harness.h"

namespace tactus {
namespace {

using testing::ExpectedOutput;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Tokens;

TEST(StepLoop, OneRequestGetsTheModelsTokens) {
  HarnessConfig config;
  Harness h(config);
  Request r = MakeRequest(Tokens(1, 13), 9);
  const auto expected = ExpectedOutput(config.executor, r, 0, {});
  const RequestHandle id = h.MustSubmit(std::move(r));
  ASSERT_EQ(h.Run(), "");
  const auto& out = h.outputs()[id];
  EXPECT_TRUE(out.done);
  EXPECT_EQ(out.choices[0].tokens, expected);
  EXPECT_EQ(out.choices[0].finish, FinishReason::kLength);
  EXPECT_EQ(out.done_event.completion_tokens, 9);
  EXPECT_EQ(h.steps(), 9);   // one prefill step samples the first token, eight decodes the rest
  EXPECT_EQ(h.kv().Stats().blocks_in_use, 0);
}

TEST(StepLoop, ManyRequestsDoNotDisturbEachOther) {
  HarnessConfig config;
  config.num_blocks = 24;   // far too little for all at once
  config.scheduler.limits.token_budget = 16;
  Harness h(config);
  std::vector<std::vector<TokenId>> expected;
  for (uint64_t i = 0; i < 20; ++i) {
    Request r = MakeRequest(Tokens(i, static_cast<int32_t>(3 + 5 * i % 40)), static_cast<int64_t>(1 + i * 7 % 23));
    expected.push_back(ExpectedOutput(config.executor, r, 0, {}));
    h.MustSubmit(std::move(r));
  }
  ASSERT_EQ(h.Run(), "");
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& out = h.outputs()[h.handles()[i]];
    EXPECT_TRUE(out.done);
    EXPECT_EQ(out.choices[0].tokens, expected[i]) << i;
  }
  EXPECT_EQ(h.loop().live_requests(), 0);
  EXPECT_GT(h.loop().Stats().preemptions, 0);
}

}  // namespace
}  // namespace tactus
