#include "core/loop/step_loop.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/loop/harness.h"

namespace tactus::core {
namespace {

using testing::ExpectedOutput;
using testing::Harness;
using testing::HarnessConfig;
using testing::MakeRequest;
using testing::Tokens;

TEST(StepLoop, RequestGetsTheModelsTokens) {
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
  EXPECT_EQ(h.steps(), 9);  // one prefill step samples the first token, eight decodes the rest
  EXPECT_EQ(h.kv().Stats().blocks_in_use, 0);
}

TEST(StepLoop, ConcurrentRequestsDoNotAffectEachOther) {
  HarnessConfig config;
  config.num_blocks = 24;  // far too few for all requests at once
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

// A device that reads weights for 8 us per step and at the same time computes tokens for 1 us each.
struct EightFree final : StepTimeModel {
  DurationNs StepTimeNs(const StepShape& s) const override { return std::max<DurationNs>(8000, 1000 * s.tokens()); }
};

TEST(StepLoop, NoGuessesAreRequestedWhenTheyCannotPay) {
  const EightFree device;
  for (const int sequences : {2, 12}) {
    HarnessConfig config;
    config.num_blocks = 400;
    config.max_num_seqs = 16;
    config.executor.max_draft_tokens = 4;
    config.draft_accuracy = 1;
    config.scheduler.limits.step_time = &device;
    config.scheduler.limits.token_budget = 64;
    Harness h(config);
    for (int i = 0; i < sequences; ++i) h.MustSubmit(MakeRequest(Tokens(static_cast<uint64_t>(i), 4), 40));
    ASSERT_EQ(h.Run(), "");
    if (sequences == 2) {
      EXPECT_EQ(h.drafts().unpaid(), 0);
    } else {
      EXPECT_GT(h.drafts().unpaid(), 12 * 35) << "twelve decodes fill the step, so guesses cost time";
    }
  }
}

TEST(StepLoop, EndsAtStopIdsAndStopStrings) {
  HarnessConfig config;
  config.model_stop_ids = {5};
  Harness h(config);
  Request plain = MakeRequest(Tokens(3, 9), 60);
  const auto full = [&] {
    Request r = plain;
    r.stop.ignore_eos = true;
    return ExpectedOutput(config.executor, r, 0, {});
  }();
  const RequestHandle with_eos = h.MustSubmit(plain);

  Request own = plain;  // ends at its stop id although it ignores the model's
  own.stop.ignore_eos = true;
  own.stop.stop_token_ids = {full[6]};
  own.stop.min_tokens = 3;
  const RequestHandle with_id = h.MustSubmit(own);

  Request text = plain;  // the harness spells token t as the letter 'a' + t % 26
  text.stop.ignore_eos = true;
  text.stop.stop = {"never",
                    std::string{static_cast<char>('a' + full[9] % 26), static_cast<char>('a' + full[10] % 26)}};
  const RequestHandle with_text = h.MustSubmit(text);

  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[with_eos].choices[0].tokens, ExpectedOutput(config.executor, plain, 0, {5}));
  const auto& id_out = h.outputs()[with_id].choices[0];
  EXPECT_EQ(id_out.finish, FinishReason::kStop);
  EXPECT_EQ(id_out.tokens, ExpectedOutput(config.executor, own, 0, {}));
  EXPECT_GE(id_out.tokens.size(), 4u);
  const auto& text_out = h.outputs()[with_text].choices[0];
  EXPECT_EQ(text_out.finish, FinishReason::kStop);
  EXPECT_EQ(text_out.stop_string, 1);
  EXPECT_LE(text_out.tokens.size(), 11u);
  EXPECT_GE(h.loop().Stats().finished_stop, 2);
}

// When the host detects a stop late, the item already chained after it is dropped and never streamed.
TEST(StepLoop, LateStopsDiscardChainedItems) {
  HarnessConfig config;
  config.executor.max_in_flight = 8;
  config.executor.can_chain = true;
  config.model_stop_ids = {5, 9, 11};
  Harness h(config);
  std::vector<RequestHandle> ids;
  for (uint64_t i = 0; i < 10; ++i) ids.push_back(h.MustSubmit(MakeRequest(Tokens(i, 6), 40)));
  ASSERT_EQ(h.Run(), "");
  int stopped = 0;
  for (uint64_t i = 0; i < 10; ++i) {
    const auto& out = h.outputs()[ids[i]].choices[0];
    EXPECT_EQ(out.tokens, ExpectedOutput(config.executor, MakeRequest(Tokens(i, 6), 40), 0, {5, 9, 11}));
    stopped += out.finish == FinishReason::kStop ? 1 : 0;
  }
  EXPECT_GT(stopped, 3);
  EXPECT_EQ(h.kv().Stats().blocks_in_use, 0);
  EXPECT_EQ(h.kv().Stats().blocks_draining, 0);
}

TEST(StepLoop, CancelEndsRequestsInEveryState) {
  HarnessConfig config;
  config.max_num_seqs = 2;
  config.scheduler.limits.token_budget = 4;
  Harness h(config);
  const RequestHandle running = h.MustSubmit(MakeRequest(Tokens(1, 3), 20));
  const RequestHandle chunked = h.MustSubmit(MakeRequest(Tokens(2, 30), 20));
  const RequestHandle waiting = h.MustSubmit(MakeRequest(Tokens(3, 3), 20));
  Request many = MakeRequest(Tokens(4, 3), 20);
  many.n = 3;
  const RequestHandle held = h.MustSubmit(many);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(h.Settle(), "");
    ASSERT_TRUE(h.Advance());
  }
  for (const RequestHandle id : {running, chunked, waiting, held}) h.Cancel(id);  // a step is in flight
  h.Cancel(12345);
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle id : {running, chunked, waiting, held}) {
    const auto& out = h.outputs()[id];
    EXPECT_TRUE(out.done);
    for (const auto& choice : out.choices) EXPECT_EQ(choice.finish, FinishReason::kCancelled);
    EXPECT_EQ(out.error.code(), StatusCode::kCancelled);
  }
  EXPECT_EQ(h.outputs()[waiting].done_event.scheduled_ns, 0);
  EXPECT_GT(h.outputs()[running].done_event.completion_tokens, 0);
  EXPECT_EQ(h.loop().live_requests(), 0);
  EXPECT_EQ(h.loop().Stats().finished_cancelled, 6);
  h.Cancel(running);  // ended long ago
  ASSERT_EQ(h.Run(), "");
}

TEST(StepLoop, QueueIsBoundedInSequences) {
  HarnessConfig config;
  config.max_queue = 4;
  config.max_num_seqs = 2;
  Harness h(config);
  Request three = MakeRequest(Tokens(1, 3), 4);
  three.n = 3;
  EXPECT_TRUE(h.Submit(three).ok());
  const auto refused = h.Submit(three);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("--max-queue is 4"), std::string::npos);
  EXPECT_TRUE(h.Submit(MakeRequest(Tokens(2, 3), 4)).ok());
  ASSERT_EQ(h.Run(), "");
  EXPECT_TRUE(h.Submit(three).ok());  // there is room again
  ASSERT_EQ(h.Run(), "");
}

TEST(StepLoop, RequestsThatNeverFitAreRefusedWithTheNumbers) {
  HarnessConfig config;
  config.num_blocks = 10;  // 40 tokens
  Harness h(config);
  const auto code = [&](Request r) {
    const auto result = h.Submit(std::move(r));
    return result.ok() ? std::string("ok") : result.status().message();
  };
  EXPECT_NE(code(MakeRequest(Tokens(1, 100), 29))
                .find("prompt of 100 tokens + max_tokens of 29 exceed the context of 128 tokens"),
            std::string::npos);
  EXPECT_NE(code(MakeRequest(Tokens(1, 30), 11)).find("needs 11 KV blocks of 4 tokens and there are 10"),
            std::string::npos);
  EXPECT_NE(code(MakeRequest({}, 3)).find("empty"), std::string::npos);
  EXPECT_NE(code(MakeRequest(Tokens(1, 3), 0)).find("at least 1"), std::string::npos);
  EXPECT_EQ(code(MakeRequest(Tokens(1, 30), 10)), "ok");
  ASSERT_EQ(h.Run(), "");
}

TEST(StepLoop, ThreeErrorsInARowEndEverything) {
  HarnessConfig config;
  config.executor.step_error_rate = 1.0;
  config.max_num_seqs = 1;
  Harness h(config);
  for (uint64_t i = 0; i < 5; ++i) h.MustSubmit(MakeRequest(Tokens(i, 3), 4));
  ASSERT_EQ(h.Run(), "");
  EXPECT_FALSE(h.loop().healthy());
  EXPECT_FALSE(h.loop().Stats().healthy);
  EXPECT_EQ(h.steps(), 3);
  for (const auto& [id, out] : h.outputs()) {
    EXPECT_TRUE(out.done);
    EXPECT_EQ(out.done_event.finish, FinishReason::kError);
    EXPECT_NE(out.error.message().find("injected"), std::string::npos);
  }
  EXPECT_EQ(h.Submit(MakeRequest(Tokens(1, 3), 4)).status().code(), StatusCode::kUnavailable);
}

TEST(StepLoop, AFailedDeviceEndsEverythingAtOnce) {
  HarnessConfig config;
  config.executor.device_fails_at = 2;
  config.executor.max_in_flight = 2;
  config.max_num_seqs = 1;
  Harness h(config);
  for (uint64_t i = 0; i < 5; ++i) h.MustSubmit(MakeRequest(Tokens(i, 3), 8));
  EXPECT_TRUE(h.loop().Failure().ok());
  ASSERT_EQ(h.Run(), "");
  EXPECT_FALSE(h.loop().healthy());
  EXPECT_FALSE(h.loop().Stats().healthy);
  EXPECT_LE(h.steps(), 4) << "the failed step, and the one that was in flight behind it";
  EXPECT_EQ(h.loop().Failure().message(), "the device has failed: injected executor error");
  for (const auto& [id, out] : h.outputs()) {
    EXPECT_TRUE(out.done);
    EXPECT_EQ(out.done_event.finish, FinishReason::kError);
    EXPECT_EQ(out.error.code(), StatusCode::kInternal) << out.error.ToString();
    EXPECT_NE(out.error.message().find("injected"), std::string::npos) << out.error.ToString();
  }
  const Status refused = h.Submit(MakeRequest(Tokens(1, 3), 4)).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_EQ(refused.message(), "the device has failed: injected executor error");
}

// In a pipeline one step must not take all sequences, or the other stages would be idle.
TEST(StepLoop, PipelineMicroBatchesShareTheSequences) {
  HarnessConfig config;
  config.executor.max_in_flight = 3;
  config.max_num_seqs = 8;
  config.scheduler.limits.pipeline_steps = 3;
  Harness h(config);
  std::vector<std::vector<TokenId>> expected;
  for (uint64_t i = 0; i < 12; ++i) {
    Request r = MakeRequest(Tokens(i, 6), 10);
    expected.push_back(ExpectedOutput(config.executor, r, 0, {}));
    h.MustSubmit(std::move(r));
  }
  ASSERT_EQ(h.Run(), "");
  size_t full = 0;
  for (const std::string& plan : h.plans()) {
    const auto items = static_cast<size_t>(std::count(plan.begin(), plan.end(), ':'));
    EXPECT_LE(items, 3u) << plan;  // ceil(8 / 3)
    full += items == 3;
  }
  EXPECT_GT(full, h.plans().size() / 2);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(h.outputs()[h.handles()[i]].choices[0].tokens, expected[i]) << i;
}

TEST(StepLoop, AbortEndsEverythingWithItsReason) {
  Harness h(HarnessConfig{});
  Request r = MakeRequest(Tokens(1, 8), 50);
  r.n = 2;
  const RequestHandle id = h.MustSubmit(r);
  ASSERT_EQ(h.Settle(), "");
  h.loop().StopAccepting(Status(StatusCode::kUnavailable, "draining"));
  EXPECT_EQ(h.Submit(r).status().message(), "draining");
  h.loop().Abort(Status(StatusCode::kUnavailable, "time is up"));
  ASSERT_EQ(h.Run(), "");
  EXPECT_TRUE(h.outputs()[id].done);
  EXPECT_EQ(h.outputs()[id].error.message(), "time is up");
}

// A request and then an abort arrive in a pass that has already read the abort flag and its input.
TEST(StepLoop, AbortEndsRequestsSubmittedInTheSamePass) {
  Harness h(HarnessConfig{});
  h.MustSubmit(MakeRequest(Tokens(1, 8), 50));
  ASSERT_EQ(h.Settle(), "");
  RequestHandle late = 0;
  h.InTheMiddleOfAPass([&] {
    late = h.MustSubmit(MakeRequest(Tokens(2, 8), 50));
    h.loop().Abort(Status(StatusCode::kUnavailable, "time is up"));
  });
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Run(), "");
  ASSERT_GT(late, 0) << "no pass polled for results";
  EXPECT_EQ(h.outputs()[late].error.message(), "time is up");
  EXPECT_LE(h.steps(), 3) << "steps were computed for aborted requests";
}

TEST(StepLoop, StatsHaveTheOldestStepWithoutAResult) {
  Harness h(HarnessConfig{});
  EXPECT_EQ(h.loop().Stats().step_in_flight, -1) << "no step was submitted";
  h.MustSubmit(MakeRequest(Tokens(1, 8), 3));
  ASSERT_EQ(h.Settle(), "");
  EngineStats stats = h.loop().Stats();
  EXPECT_EQ(stats.step_in_flight, 0);
  EXPECT_EQ(stats.step_since_ns, h.clock().NowNs()) << "it was planned now";
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  stats = h.loop().Stats();
  EXPECT_EQ(stats.step_in_flight, 1);
  EXPECT_EQ(stats.step_since_ns, h.clock().NowNs()) << "the time of the first step counts for it too";
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.loop().Stats().step_in_flight, -1) << "every step has ended";
}

// A step in flight may still read those host blocks.
TEST(StepLoop, ReserveIsAnsweredAfterTheStepsInFlight) {
  HarnessConfig config;
  config.swap_blocks = 4;
  Harness h(config);
  h.MustSubmit(MakeRequest(Tokens(1, 8), 20));
  ASSERT_EQ(h.Settle(), "");
  size_t told = 0;
  h.loop().Transfer({.kind = TransferKind::kReserve, .blocks = 3, .answer = [&](TransferAnswer answer) {
                       EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
                       told = answer.host_blocks.size();
                     }});
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(told, 0u) << "a step is in flight";
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  ASSERT_TRUE(h.Advance());
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(told, 3u);
  ASSERT_EQ(h.Run(), "");
}

TEST(StepLoop, RequestWithPromptLogprobsSharesNothing) {
  HarnessConfig config;
  config.scheduler.limits.token_budget = 5;
  Harness h(config);
  h.MustSubmit(MakeRequest(Tokens(1, 12), 1));
  ASSERT_EQ(h.Run(), "");
  Request r = MakeRequest(Tokens(1, 12), 1);
  r.prompt_logprobs = true;
  const RequestHandle id = h.MustSubmit(r);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[id].done_event.cached_tokens, 0);
}

TEST(StepLoop, RequestTimesMatchTheSteps) {
  Harness h(HarnessConfig{});  // a step takes 1 ms + 10 us per token
  const TimeNs start = h.clock().NowNs();
  const RequestHandle id = h.MustSubmit(MakeRequest(Tokens(1, 10), 3));
  ASSERT_EQ(h.Run(), "");
  const auto& out = h.outputs()[id];
  EXPECT_EQ(out.done_event.arrival_ns, start);
  EXPECT_EQ(out.done_event.scheduled_ns, start);
  EXPECT_EQ(out.done_event.first_token_ns, start + kMillisecond + 100 * kMicrosecond);
  EXPECT_EQ(out.choices[0].token_ns[1] - out.choices[0].token_ns[0], kMillisecond + 10 * kMicrosecond);
  EXPECT_EQ(out.done_event.done_ns, out.choices[0].token_ns[2]);
}

// A preempted sequence counts in the queue again.
TEST(StepLoop, PreemptedSequencesCountInTheQueue) {
  HarnessConfig config;
  config.num_blocks = 6;
  config.max_queue = 3;
  Harness h(config);
  for (uint64_t i = 0; i < 2; ++i) h.MustSubmit(MakeRequest(Tokens(i, 8), 12));  // five blocks each in the end
  for (int step = 0; step < 40 && h.loop().Stats().preemptions == 0; ++step) {
    ASSERT_EQ(h.Settle(), "");
    if (h.loop().Stats().preemptions == 0) {
      ASSERT_TRUE(h.Advance());
    }
  }
  ASSERT_EQ(h.loop().Stats().preemptions, 1);
  ASSERT_EQ(h.loop().Stats().waiting, 1);
  EXPECT_TRUE(h.Submit(MakeRequest(Tokens(2, 8), 1)).ok());
  EXPECT_TRUE(h.Submit(MakeRequest(Tokens(3, 8), 1)).ok());
  const auto refused = h.Submit(MakeRequest(Tokens(4, 8), 1));
  ASSERT_FALSE(refused.ok()) << "three wait already";
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(h.Run(), "");
}

// ReplicaConfig::lean: tables that grow with use, as simulated fleets have them.
TEST(StepLoop, TablesThatGrowWithUseChangeNoPlan) {
  uint64_t hashes[2];
  for (const bool lean : {false, true}) {
    HarnessConfig config;
    config.lean = lean;
    config.num_blocks = 24;
    config.swap_blocks = 8;
    config.faults = {{9}};
    Harness h(config);
    for (uint64_t i = 0; i < 24; ++i) {
      Request r = MakeRequest(Tokens(i % 5, static_cast<int32_t>(6 + i % 11)), 3 + static_cast<int64_t>(i % 7));
      r.n = i % 4 == 0 ? 2 : 1;
      h.MustSubmit(std::move(r));
    }
    ASSERT_EQ(h.Run(), "") << "lean " << lean;
    hashes[lean ? 1 : 0] = h.loop().plan_hash();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace tactus::core
