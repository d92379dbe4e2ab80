// The gate: its predicted first tokens against the actual ones, which requests it refuses, and which pass. A step of
// the fake executor takes 1 ms and 10 us per token, and the step-time model predicts the same unless a test changes
// that.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "core/loop/harness.h"
#include "core/sched/known_lengths.h"
#include "core/trace/replay.h"

namespace tactus::core {
namespace {

using testing::Harness;
using testing::HarnessConfig;
using testing::KnownLengths;
using testing::MakeRequest;
using testing::RequestOutput;
using testing::Tokens;

struct FakeSteps final : StepTimeModel {
  double times = 1;  // the model's times relative to the executor's
  DurationNs StepTimeNs(const StepShape& shape) const override {
    const DurationNs exact = kMillisecond + shape.tokens() * 10 * kMicrosecond;
    return static_cast<DurationNs>(static_cast<double>(exact) * times);
  }
};

class Gate : public ::testing::Test {
 protected:
  Gate() {
    config_.scheduler.gate = "predict";
    config_.scheduler.limits.token_budget = 32;
    config_.scheduler.limits.step_time = &steps_;
    config_.num_blocks = 512;
    config_.max_model_len = 512;
    config_.predictor = &lengths_;
    config_.prefix_caching = false;
  }

  RequestHandle Add(Harness* h, int32_t prompt, int64_t answer, DurationNs ttft_ns = 0, std::string service_class = "",
                    int32_t n = 1) {
    Request r = MakeRequest(Tokens(h->handles().size() + 7, prompt), answer);
    r.stop.ignore_eos = true;
    r.slo.ttft_ns = ttft_ns;
    r.slo_class = std::move(service_class);
    r.n = n;
    return h->MustSubmit(std::move(r));
  }
  // |predicted - measured| / measured.
  static double ErrorOf(const RequestOutput& out) {
    const RequestDoneEvent& d = out.done_event;
    const auto measured = static_cast<double>(d.first_token_ns - d.arrival_ns);
    EXPECT_GE(d.predicted_ttft_ns, 0) << "nothing was predicted";
    return std::abs(static_cast<double>(d.predicted_ttft_ns) - measured) / measured;
  }

  // Exact, except for later arrivals that fill the step in which its prompt ends: at most 32 tokens.
  static void ExpectPredicted(const RequestOutput& out) {
    const RequestDoneEvent& d = out.done_event;
    const DurationNs later_ns = d.first_token_ns - d.arrival_ns - d.predicted_ttft_ns;
    EXPECT_GE(d.predicted_ttft_ns, 0) << "nothing was predicted";
    EXPECT_GE(later_ns, 0);
    EXPECT_LE(later_ns, 32 * 10 * kMicrosecond) << "of " << d.first_token_ns - d.arrival_ns;
  }

  FakeSteps steps_;
  KnownLengths lengths_{{8}};
  HarnessConfig config_;
};

// 100 tokens at 32 per step: three full steps and one of 4, 5 ms in all.
TEST_F(Gate, PredictsAnIdleEngineExactly) {
  Harness h(config_);
  const RequestHandle id = Add(&h, 100, 8);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[id].done_event.predicted_ttft_ns, 5 * kMillisecond);
  EXPECT_EQ(ErrorOf(h.outputs()[id]), 0);
}

// A step of 16 tokens runs for 1.16 ms; the new request arrives 1 ms into it.
TEST_F(Gate, PredictsTheRestOfTheStepInFlight) {
  Harness h(config_);
  Add(&h, 16, 8);
  ASSERT_EQ(h.Settle(), "");
  h.clock().AdvanceTo(h.clock().NowNs() + kMillisecond);
  const RequestHandle id = Add(&h, 10, 8);
  ASSERT_EQ(h.Run(), "");
  // The rest of that step, then one with the other's decode.
  EXPECT_EQ(h.outputs()[id].done_event.predicted_ttft_ns, 160 * kMicrosecond + kMillisecond + 110 * kMicrosecond);
  EXPECT_EQ(ErrorOf(h.outputs()[id]), 0);
}

// Each is predicted behind those before it, including their decodes until these end.
TEST_F(Gate, PredictsAQueue) {
  Harness h(config_);
  for (int i = 0; i < 8; ++i) Add(&h, 40 + 10 * i, 8);
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle id : h.handles()) ExpectPredicted(h.outputs()[id]);
}

TEST_F(Gate, PredictsWhenAPlaceComesFree) {
  config_.max_num_seqs = 2;
  Harness h(config_);
  for (int i = 0; i < 6; ++i) Add(&h, 20, 8);
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle id : h.handles()) ExpectPredicted(h.outputs()[id]);
  EXPECT_GT(h.outputs()[h.handles().back()].done_event.predicted_ttft_ns, 16 * kMillisecond)
      << "the test needs requests that wait for two answers of 8 tokens";
}

TEST_F(Gate, PredictsWhenBlocksComeFree) {
  config_.scheduler.admission = "max-length";
  config_.num_blocks = 14;  // of 4 tokens: two sequences of 28
  Harness h(config_);
  for (int i = 0; i < 6; ++i) Add(&h, 20, 8);
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle id : h.handles()) ExpectPredicted(h.outputs()[id]);
  EXPECT_GT(h.outputs()[h.handles().back()].done_event.predicted_ttft_ns, 16 * kMillisecond);
}

// Half of the blocks stay free, so one runs at a time.
TEST_F(Gate, PredictsWithTheBlocksThatAdmissionKeepsFree) {
  config_.scheduler.limits.watermark = 0.5;
  config_.num_blocks = 14;  // of 4 tokens: room for two of 20 tokens, or one beside what stays free
  Harness h(config_);
  for (int i = 0; i < 4; ++i) Add(&h, 20, 8);
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle id : h.handles()) ExpectPredicted(h.outputs()[id]);
  EXPECT_GT(h.outputs()[h.handles().back()].done_event.predicted_ttft_ns, 24 * kMillisecond)
      << "the test needs requests that wait for three answers of 8 tokens";
}

// Two of four answers to a prompt of 200 tokens wait for a place when the new request arrives. Their prompt is
// computed.
TEST_F(Gate, PredictsSiblingsThatShareTheirPrompt) {
  config_.max_num_seqs = 2;
  Harness h(config_);
  Add(&h, 200, 8, 0, "", 4);
  for (int i = 0; i < 9; ++i) {
    ASSERT_EQ(h.Settle(), "");
    h.clock().AdvanceTo(h.clock().NowNs() + kMillisecond);
  }
  ASSERT_EQ(h.Settle(), "");
  const RequestHandle id = Add(&h, 20, 8);
  ASSERT_EQ(h.Run(), "");
  ExpectPredicted(h.outputs()[id]);
}

// Shortest prompts first: the new request is predicted before the waiting long ones.
TEST_F(Gate, FollowsTheOrderOfTheQueue) {
  config_.scheduler.order = "shortest-prompt";
  Harness h(config_);
  for (int i = 0; i < 4; ++i) Add(&h, 100, 8);
  ASSERT_EQ(h.Settle(), "");
  const RequestHandle id = Add(&h, 10, 8);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(ErrorOf(h.outputs()[id]), 0);
}

TEST_F(Gate, RefusesOnlyRequestsThatWouldMissTheirTtft) {
  Harness h(config_);
  const RequestHandle fits = Add(&h, 100, 8, 6 * kMillisecond);
  const RequestHandle late = Add(&h, 100, 8, 6 * kMillisecond);      // behind it: 10 ms
  const RequestHandle patient = Add(&h, 100, 8, 18 * kMillisecond);  // 10 ms, and 3/4 more for lack of samples
  ASSERT_EQ(h.Run(), "");
  EXPECT_FALSE(h.outputs()[fits].done_event.refused);
  EXPECT_FALSE(h.outputs()[patient].done_event.refused) << "the refused request is no longer ahead of it";
  EXPECT_LT(ErrorOf(h.outputs()[patient]), 0.02);

  const RequestOutput& out = h.outputs()[late];
  EXPECT_TRUE(out.done_event.refused);
  EXPECT_EQ(out.done_event.finish, FinishReason::kError);
  EXPECT_EQ(out.done_event.scheduled_ns, 0) << "it got a share of a step";
  EXPECT_EQ(out.error.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(out.error.message().find("its objective is 0.01 s; try again in 1.00 s"), std::string::npos)
      << out.error.message();
  EXPECT_EQ(out.error.retry_after_ns(), kSecond);
  EXPECT_EQ(out.done_event.done_ns, out.done_event.arrival_ns) << "it is refused at once";
  const EngineStats stats = h.loop().Stats();
  EXPECT_EQ(stats.finished_error, 0) << "a refused request did not fail";
  EXPECT_EQ(stats.waiting + stats.running + stats.kv_blocks_in_use, 0);
}

TEST_F(Gate, ARefusedRequestEndsWithAllItsChoices) {
  Harness h(config_);
  const RequestHandle id = Add(&h, 100, 8, kMillisecond, "", 3);
  ASSERT_EQ(h.Run(), "");
  const RequestOutput& out = h.outputs()[id];
  EXPECT_TRUE(out.done_event.refused);
  for (const auto& choice : out.choices) EXPECT_EQ(choice.finish, FinishReason::kError);
  EXPECT_EQ(h.steps(), 0);
}

TEST_F(Gate, AnArrivalCancelledAtOnceIsNotChecked) {
  Harness h(config_);
  h.Cancel(Add(&h, 100, 8, kMillisecond));
  ASSERT_EQ(h.Run(), "");
  const RequestDoneEvent& done = h.outputs()[h.handles()[0]].done_event;
  EXPECT_FALSE(done.refused);
  EXPECT_EQ(done.finish, FinishReason::kCancelled);
}

TEST_F(Gate, AClassSetsTheGateOfItsRequests) {
  const auto classes = ParseServiceClasses({"shed:gate=shed", "wait:gate=queue", "off:gate=off", "as-all"});
  ASSERT_TRUE(classes.ok()) << classes.status().message();
  config_.scheduler.limits.classes = *classes;
  for (const std::string gate : {"queue", "predict"}) {
    config_.scheduler.gate = gate;
    Harness h(config_);
    std::map<std::string, RequestHandle> of;
    for (const char* name : {"shed", "wait", "off", "as-all", ""}) of[name] = Add(&h, 100, 8, kMillisecond, name);
    ASSERT_EQ(h.Run(), "");
    const auto refused = [&](const char* name) { return h.outputs()[of[name]].done_event.refused; };
    EXPECT_TRUE(refused("shed")) << gate;
    EXPECT_FALSE(refused("wait")) << gate;
    EXPECT_FALSE(refused("off")) << gate;
    EXPECT_EQ(refused("as-all"), gate == "predict") << gate;
    EXPECT_EQ(refused(""), gate == "predict") << gate;
    ExpectPredicted(h.outputs()[of["wait"]]);  // predicted although it cannot be refused
  }
}

// --max-queue is 2: requests with the gate off exceed it, up to as many again.
TEST_F(Gate, RequestsWithTheGateOffExceedTheQueueLimit) {
  config_.max_queue = 2;
  config_.scheduler.gate = "queue";
  const auto classes = ParseServiceClasses({"vip:gate=off"});
  config_.scheduler.limits.classes = *classes;
  config_.max_num_seqs = 1;
  Harness h(config_);
  const auto submit = [&](const std::string& name) {
    Request r = MakeRequest(Tokens(3, 10), 4);
    r.slo_class = name;
    return h.Submit(std::move(r)).ok();
  };
  EXPECT_TRUE(submit("") && submit(""));
  EXPECT_FALSE(submit("")) << "two wait already";
  EXPECT_TRUE(submit("vip") && submit("vip") && submit("vip")) << "five slots: one to run, two to wait, two beyond";
  EXPECT_FALSE(submit("vip")) << "the tables are full";
  Request beyond = MakeRequest(Tokens(3, 10), 4);
  beyond.slo_class = "vip";
  EXPECT_EQ(h.Submit(beyond).status().message(),
            "the engine is full: it holds 5 sequences of at most 5; try again later");
  ASSERT_EQ(h.Run(), "");
}

// The model predicts half of the steps' time; the gate learns the factor from the first tokens.
TEST_F(Gate, LearnsItsErrorFromFirstTokens) {
  steps_.times = 0.5;
  Harness h(config_);
  for (int i = 0; i < 4; ++i) {
    Add(&h, 100, 8);
    ASSERT_EQ(h.Run(), "");
  }
  EXPECT_NEAR(ErrorOf(h.outputs()[h.handles()[0]]), 0.5, 0.02);
  EXPECT_LT(ErrorOf(h.outputs()[h.handles()[3]]), 0.02);
}

// A second prompt behind a first one has its first token after 10 ms. It is accepted if earlier first tokens came as
// predicted, and not if they varied, or if there were few.
TEST_F(Gate, AcceptsOnlyWithAMarginForItsError) {
  const auto refused_at = [this](int seen, double slow, int slow_ones, DurationNs objective_ns) {
    steps_.times = 1;
    Harness h(config_);
    for (int i = 0; i < seen; ++i) {
      steps_.times = i % (seen / std::max(1, slow_ones)) == 0 && slow_ones > 0 ? 1 / slow : 1;
      Add(&h, 100, 8);
      EXPECT_EQ(h.Run(), "");
    }
    steps_.times = 1;
    Add(&h, 100, 8);
    const RequestHandle second = Add(&h, 100, 8, objective_ns);
    EXPECT_EQ(h.Run(), "");
    return h.outputs()[second].done_event.refused;
  };
  EXPECT_FALSE(refused_at(32, 1, 0, 11 * kMillisecond)) << "all as predicted";
  EXPECT_TRUE(refused_at(32, 1.4, 4, 11 * kMillisecond)) << "4 of 32 took 1.4 times as long";
  EXPECT_FALSE(refused_at(32, 1.4, 4, 15 * kMillisecond)) << "which is time enough";
  EXPECT_FALSE(refused_at(32, 1.4, 1, 11 * kMillisecond)) << "one alone is a disturbance";
  EXPECT_TRUE(refused_at(4, 1, 0, 11 * kMillisecond)) << "4 are too few samples";
  EXPECT_FALSE(refused_at(4, 1, 0, 18 * kMillisecond));
}

// An hour passes within a step. The request in flight is late; later predictions are as exact as before.
TEST_F(Gate, AClockJumpLeavesLaterPredictionsExact) {
  Harness h(config_);
  const auto serve = [&] {
    const RequestHandle id = Add(&h, 100, 8);
    EXPECT_EQ(h.Run(), "");
    return id;
  };
  for (int i = 0; i < 3; ++i) serve();
  const RequestHandle late = Add(&h, 100, 8, kSecond);
  ASSERT_EQ(h.Settle(), "");
  h.clock().AdvanceTo(h.clock().NowNs() + 3600 * kSecond);
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[late].done_event.finish, FinishReason::kLength);
  EXPECT_GT(ErrorOf(h.outputs()[late]), 0.9) << "the test needs a late first token";
  EXPECT_EQ(ErrorOf(h.outputs()[serve()]), 0);
}

// Steps that are predicted to take longer than they do leave no error behind once they have ended.
TEST_F(Gate, OverlongPredictionsDoNotAddUp) {
  steps_.times = 1.5;
  Harness h(config_);
  Add(&h, 8, 200);
  ASSERT_EQ(h.Run(), "");
  const RequestHandle id = Add(&h, 100, 8);
  ASSERT_EQ(h.Settle(), "");
  ASSERT_EQ(h.Run(), "");
  EXPECT_LE(h.outputs()[id].done_event.predicted_ttft_ns, 5 * kMillisecond * 3 / 2) << "the engine was idle";
}

// After one bad sample every request with an objective would be refused, and refused requests yield no new samples.
TEST_F(Gate, ATooLargeCorrectionDecays) {
  steps_.times = 0.2;
  Harness h(config_);
  Add(&h, 100, 8);
  ASSERT_EQ(h.Run(), "");
  steps_.times = 1;
  int refused = 0;
  for (int i = 0; i < 5; ++i) {
    const RequestHandle id = Add(&h, 100, 8, 6 * kMillisecond);
    ASSERT_EQ(h.Run(), "");
    refused += h.outputs()[id].done_event.refused;
    h.clock().AdvanceTo(h.clock().NowNs() + 6 * kMillisecond);
  }
  EXPECT_GE(refused, 1) << "the test needs a correction that is too large";
  EXPECT_LE(refused, 2);
}

// Refused requests yield no first tokens: the correction decays with time, not with their number.
TEST_F(Gate, ABurstOfRefusalsDoesNotDecayTheCorrection) {
  steps_.times = 0.5;
  Harness h(config_);
  for (int i = 0; i < 4; ++i) Add(&h, 100, 8);
  ASSERT_EQ(h.Run(), "");
  std::vector<RequestHandle> burst;
  for (int i = 0; i < 50; ++i) burst.push_back(Add(&h, 100, 8, 4 * kMillisecond));
  ASSERT_EQ(h.Run(), "");
  std::set<DurationNs> predicted;
  for (const RequestHandle id : burst) {
    ASSERT_TRUE(h.outputs()[id].done_event.refused) << "the test needs requests that the model alone would accept";
    predicted.insert(h.outputs()[id].done_event.predicted_ttft_ns);
  }
  EXPECT_LE(predicted.size(), 2u) << "the time since the last first token drops one sample";
}

// More wait than the order plans for (128). A long prompt behind them has become one that cannot be kept; the order
// detects that while the gate asks about a request behind it, and the prompt is cancelled before the next plan.
TEST_F(Gate, ARequestCancelledAfterTheOrderFoundItMissedIsGone) {
  config_.scheduler.preset = "tactus";
  config_.scheduler.gate = "queue";  // all are predicted, and none is refused
  config_.scheduler.limits.classes = *ParseServiceClasses({"shed:gate=shed"});
  config_.scheduler.limits.token_budget = 16;
  config_.max_queue = 400;
  Harness h(config_);
  Add(&h, 60, 8);
  ASSERT_EQ(h.Settle(), "");  // its step takes 1.16 ms
  for (int i = 0; i < 140; ++i) Add(&h, 4, 4, 950 * kMicrosecond);
  // Some of them can be kept now, and half a millisecond later no longer.
  std::vector<RequestHandle> long_ones;
  for (int i = 0; i < 100; ++i) long_ones.push_back(Add(&h, 400, 4, (1000 + 400 * i) * kMicrosecond));
  Add(&h, 20, 4, kSecond);
  ASSERT_EQ(h.Settle(), "");
  h.clock().AdvanceTo(h.clock().NowNs() + 500 * kMicrosecond);
  Add(&h, 4, 4, kSecond / 2);
  ASSERT_EQ(h.Settle(), "");
  for (const RequestHandle id : long_ones) h.Cancel(id);
  EXPECT_EQ(h.Run(), "");
  for (const RequestHandle id : long_ones) EXPECT_EQ(h.outputs()[id].done_event.finish, FinishReason::kCancelled);
}

TEST_F(Gate, AFreshInstanceMakesTheSamePredictions) {
  std::vector<DurationNs> predicted[2];
  for (const bool fresh : {false, true}) {
    config_.fresh_policies = fresh;
    Harness h(config_);
    for (int i = 0; i < 12; ++i) {
      Add(&h, 30 + 7 * i, 4 + i, (i % 3) * 20 * kMillisecond);
      if (i % 2 == 0) h.Settle();
      if (i % 4 == 3) h.Advance();
    }
    ASSERT_EQ(h.Run(), "");
    for (const RequestHandle id : h.handles()) predicted[fresh].push_back(h.outputs()[id].done_event.predicted_ttft_ns);
  }
  EXPECT_EQ(predicted[0], predicted[1]);
}

TEST_F(Gate, ARecordedRunReplaysWithItsRefusals) {
  config_.trace_path = ::testing::TempDir() + "gate.trace";
  config_.predictor = nullptr;  // history
  Harness h(config_);
  int64_t refused = 0;
  for (int i = 0; i < 30; ++i) {
    Add(&h, 30 + 7 * (i % 9), 4 + i % 5, (i % 3) * 10 * kMillisecond);
    h.Settle();
    if (i % 4 == 3) h.Advance();
  }
  ASSERT_EQ(h.Run(), "");
  for (const RequestHandle id : h.handles()) refused += h.outputs()[id].done_event.refused;
  EXPECT_GT(refused, 3) << "the test needs some refused requests";
  EXPECT_LT(refused, 18);
  ASSERT_TRUE(h.CloseTrace().ok());
  const auto report = ReplayTrace(config_.trace_path, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->identical()) << "first other plan: step " << report->first_difference;
  EXPECT_EQ(report->steps_recorded, h.steps());
  std::remove(config_.trace_path.c_str());
}

TEST_F(Gate, WithoutAStepTimeModelNoRequestIsRefused) {
  config_.scheduler.limits.step_time = nullptr;
  Harness h(config_);
  const RequestHandle id = Add(&h, 100, 8, kMillisecond);
  ASSERT_EQ(h.Run(), "");
  EXPECT_FALSE(h.outputs()[id].done_event.refused);
  EXPECT_EQ(h.outputs()[id].done_event.predicted_ttft_ns, -1);
}

}  // namespace
}  // namespace tactus::core
