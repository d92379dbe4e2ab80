// A recorded run predicted with a step-time model: the model of the recording has no error, another its exact ratio.
#include "sim/replay/replay_model.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "core/loop/harness.h"
#include "core/trace/change_header.h"
#include "sim/simulator/simulator.h"

namespace tactus {
namespace {

class LinearSteps final : public StepTimeModel {
 public:
  explicit LinearSteps(double factor) : factor_(factor) {}
  DurationNs StepTimeNs(const StepShape& s) const override {
    const double ns = 4e6 + 3e4 * static_cast<double>(s.tokens()) + 20.0 * static_cast<double>(s.decode_context_tokens);
    return static_cast<DurationNs>(factor_ * ns);
  }

 private:
  const double factor_;
};

// A recorded run with preemptions, shared prefixes and conversations.
std::string Record(const StepTimeModel& model, const std::string& workload,
                   const std::string& preset = "sarathi-serve") {
  const std::string path = ::testing::TempDir() + "replay_model_test.trace";
  auto spec = sim::ParseWorkload(workload);
  auto arrivals = sim::ParseArrivals("poisson", 6);
  EXPECT_TRUE(spec.ok() && arrivals.ok());
  auto stream = sim::WorkloadStream::Open(*spec, *arrivals, 150, 7);
  EXPECT_TRUE(stream.ok());
  sim::SimulationConfig config;
  config.scheduler.preset = preset;
  config.scheduler.limits.unlimited_steps = true;
  config.scheduler.limits.max_num_seqs = 16;
  config.scheduler.limits.max_model_len = 4096;
  config.scheduler.limits.blocks_total = 400;
  config.scheduler.limits.token_budget = 256;
  config.step_time = &model;
  config.clip_prompts = true;
  config.default_max_tokens = 1024;
  config.trace_out = path;
  auto simulation = sim::Simulation::Create(config, stream->get());
  EXPECT_TRUE(simulation.ok()) << simulation.status().ToString();
  EXPECT_TRUE((*simulation)->Run().ok());
  EXPECT_GT((*simulation)->Stats().steps, 100);
  return path;
}

TEST(ReplayModel, RecordingModelPredictsTheRunExactly) {
  const LinearSteps model(1);
  for (const char* workload : {"prefix:shared=200,unique=100,out=60", "chat"}) {
    const std::string path = Record(model, workload);
    const auto replay = sim::ReplayWithModel(path, model);
    std::remove(path.c_str());
    ASSERT_TRUE(replay.ok()) << workload << ": " << replay.status().ToString();
    EXPECT_TRUE(replay->recorded.identical());
    EXPECT_EQ(replay->errors.steps, replay->recorded.steps_recorded);
    EXPECT_EQ(replay->errors.median_abs, 0);
    EXPECT_EQ(replay->errors.p90_abs, 0);
    // The largest shapes of the run, over all of its steps.
    EXPECT_EQ(replay->most_chunk.tokens, 256) << workload << ": the budget, filled by the longer prompts";
    EXPECT_GE(replay->most_chunk.context_tokens, 256) << workload << ": the second chunk of such a prompt";
    EXPECT_GT(replay->most.decodes, 1) << workload;
    EXPECT_LE(replay->most.decodes, 16) << workload;
    EXPECT_EQ(replay->predicted.engine->steps, replay->measured.engine->steps) << workload;
    EXPECT_EQ(replay->predicted.engine->preemptions, replay->measured.engine->preemptions) << workload;
    EXPECT_EQ(replay->predicted.duration_s, replay->measured.duration_s) << workload;
    EXPECT_EQ(replay->predicted.ttft_ms.p99, replay->measured.ttft_ms.p99) << workload;
    EXPECT_EQ(replay->predicted.tbt_ms.mean, replay->measured.tbt_ms.mean) << workload;
    EXPECT_EQ(replay->predicted.e2e_ms.max, replay->measured.e2e_ms.max) << workload;
  }
}

// A turn arrives at the instant at which the turn before ends, but after that step's plan; the replay knows only the
// instant and admits the turn one step earlier.
TEST(ReplayModel, ConversationsArePredictedToAStep) {
  const LinearSteps model(1);
  const std::string path = Record(model, "multi-turn");
  const auto replay = sim::ReplayWithModel(path, model);
  std::remove(path.c_str());
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  EXPECT_EQ(replay->errors.median_abs, 0);
  EXPECT_GT(replay->recorded.stats.prefix_hit_tokens, 1000);
  EXPECT_NEAR(replay->predicted.ttft_ms.p50 / replay->measured.ttft_ms.p50, 1, 0.02);
  EXPECT_NEAR(replay->predicted.tbt_ms.mean / replay->measured.tbt_ms.mean, 1, 0.01);
  EXPECT_NEAR(replay->predicted.duration_s / replay->measured.duration_s, 1, 0.001);
}

TEST(ReplayModel, RecordingsOfEarlierProgramsArePredictedToo) {
  const LinearSteps model(1);
  const std::string path = Record(model, "chat", "tactus");
  testing::RepeatStepTimesOfConstruction(path);
  const auto replay = sim::ReplayWithModel(path, model);
  std::remove(path.c_str());
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  EXPECT_TRUE(replay->recorded.identical());
  EXPECT_EQ(replay->predicted.duration_s, replay->measured.duration_s);
}

TEST(ReplayModel, SlowerModelHasItsRatioAsError) {
  const std::string path = Record(LinearSteps(1), "chat");
  const LinearSteps slow(1.1);
  const auto replay = sim::ReplayWithModel(path, slow);
  std::remove(path.c_str());
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  EXPECT_NEAR(replay->errors.median_abs, 0.1, 1e-6);
  EXPECT_NEAR(replay->errors.total, 0.1, 1e-6);
  EXPECT_GT(replay->predicted.tbt_ms.p50, 1.05 * replay->measured.tbt_ms.p50);
  EXPECT_GT(replay->predicted.ttft_ms.p50, replay->measured.ttft_ms.p50);
}

// A client that closes its connection behind a whole answer cancels an ended request. With a slower model the request
// still runs at that time, and the client would have waited.
TEST(ReplayModel, CancelBehindAWholeAnswerIsIgnored) {
  testing::HarnessConfig config;
  config.trace_path = ::testing::TempDir() + "replay_model_cancel.trace";
  testing::Harness h(config);
  ASSERT_TRUE(h.scheduler_error().ok()) << h.scheduler_error().ToString();
  Request request;
  request.prompt = std::make_shared<const std::vector<TokenId>>(10, 1);
  request.stop.max_tokens = 4;
  const RequestHandle whole = h.MustSubmit(request);
  ASSERT_EQ(h.Run(), "");
  ASSERT_TRUE(h.outputs().at(whole).done);
  h.Cancel(whole);
  ASSERT_EQ(h.Settle(), "");
  request.stop.max_tokens = 64;
  const RequestHandle left = h.MustSubmit(request);
  ASSERT_EQ(h.Settle(), "");
  ASSERT_TRUE(h.Advance());
  h.Cancel(left);
  ASSERT_EQ(h.Run(), "");
  ASSERT_TRUE(h.CloseTrace().ok());
  const auto replay = sim::ReplayWithModel(config.trace_path, LinearSteps(1000));
  std::remove(config.trace_path.c_str());
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  for (const RunResult* run : {&replay->measured, &replay->predicted}) {
    EXPECT_EQ(run->completed, 1) << "the whole answer";
    EXPECT_EQ(run->failed, 1) << "the cancelled one";
  }
}

// The fake executor's time per step, as a model.
class FakeSteps final : public StepTimeModel {
 public:
  DurationNs StepTimeNs(const StepShape& s) const override {
    const FakeExecutorConfig fake;
    return fake.step_base_ns + s.tokens() * fake.step_token_ns;
  }
};

// A GPU's executor is given the next step while one is computed.
TEST(ReplayModel, RunsWithTwoStepsInFlightArePredictedWithTwoInFlight) {
  testing::HarnessConfig config;
  config.executor.max_in_flight = 2;
  config.executor.can_chain = true;
  config.trace_path = ::testing::TempDir() + "replay_model_pairs.trace";
  testing::Harness h(config);
  ASSERT_TRUE(h.scheduler_error().ok()) << h.scheduler_error().ToString();
  for (int32_t i = 0; i < 5; ++i) {
    Request request;
    request.prompt = std::make_shared<const std::vector<TokenId>>(10 + 3 * i, 1 + i);
    request.stop.max_tokens = 4 + 5 * i;
    request.stop.ignore_eos = true;
    h.MustSubmit(request);
  }
  ASSERT_EQ(h.Run(), "");
  int64_t chained = 0;
  for (const auto& [handle, items] : h.chained_items()) chained += items;
  ASSERT_GT(chained, 20) << "the run has no step that was planned before the tokens of the one before it";
  ASSERT_TRUE(h.CloseTrace().ok());
  const auto replay = sim::ReplayWithModel(config.trace_path, FakeSteps());
  std::remove(config.trace_path.c_str());
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  EXPECT_TRUE(replay->recorded.identical());
  EXPECT_EQ(replay->errors.p90_abs, 0);
  EXPECT_EQ(replay->predicted.completed, 5);
  EXPECT_EQ(replay->predicted.engine->steps, replay->measured.engine->steps);
  EXPECT_EQ(replay->predicted.duration_s, replay->measured.duration_s);
}

TEST(ReplayModel, MissingTraceIsRefused) {
  const LinearSteps model(1);
  EXPECT_EQ(sim::ReplayWithModel("/no/such/file", model).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tactus
