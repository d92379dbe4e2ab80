// A step-time model corrected at run time: its factor, the effect on plans, and that a recording of such a run replays.
#include "core/loop/corrected_step_times.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "core/loop/harness.h"
#include "core/trace/replay.h"

namespace tactus::testing {
namespace {

// The fake executor's times, 1 ms and 0.1 ms per token, divided by `slower`.
class ThinksTooFast final : public StepTimeModel {
 public:
  explicit ThinksTooFast(double slower) : slower_(slower) {}
  DurationNs StepTimeNs(const StepShape& s) const override {
    return static_cast<DurationNs>(static_cast<double>(kMillisecond + 100 * kMicrosecond * s.tokens()) / slower_);
  }

 private:
  const double slower_;
};

StepPlan PlanOf(int32_t prompt_tokens, int32_t decodes) {
  StepPlan plan;
  for (int32_t d = 0; d < decodes; ++d) plan.items.push_back({d, 9, 1, 1, true});
  plan.num_decodes = decodes;
  plan.decode_context_tokens = 10 * decodes;
  if (prompt_tokens > 0) {
    plan.prompt_items.push_back(decodes);
    plan.items.push_back({decodes, 0, prompt_tokens, 0, false});
  }
  plan.num_tokens = prompt_tokens + decodes;
  return plan;
}

// Reports steps that took `ratio` times the uncorrected prediction.
void Take(core::CorrectedStepTimes* times, int count, double ratio, int32_t prompt_tokens = 100, int32_t decodes = 1) {
  for (int i = 0; i < count; ++i) {
    const auto predicted = times->Predict(PlanOf(prompt_tokens, decodes));
    times->Ended(predicted, static_cast<DurationNs>(static_cast<double>(predicted.by_model_ns) * ratio));
  }
}

TEST(CorrectedStepTimes, FactorIsMeasuredOverPredicted) {
  const ThinksTooFast model(1);
  core::CorrectedStepTimes times(&model);
  StepShape shape;
  shape.decodes = 10;
  EXPECT_EQ(times.StepTimeNs(shape), 2 * kMillisecond);
  EXPECT_EQ(times.factor(), 1);
  Take(&times, 1, 1.5);
  EXPECT_NEAR(times.factor(), 1.5, 1e-6);
  EXPECT_NEAR(static_cast<double>(times.StepTimeNs(shape)), 3e6, 10);
  Take(&times, 100, 1.5);
  EXPECT_NEAR(times.factor(), 1.5, 1e-6) << "the correction acted on itself";
  Take(&times, 32, 0.8);
  EXPECT_NEAR(times.factor(), 0.8, 1e-6) << "the last 32 count";
}

TEST(CorrectedStepTimes, FactorIsRobustAndBounded) {
  const ThinksTooFast model(1);
  core::CorrectedStepTimes times(&model);
  Take(&times, 20, 1.2);
  Take(&times, 9, 50);
  EXPECT_NEAR(times.factor(), 1.2, 1e-6) << "a few disturbed steps have no effect";
  Take(&times, 23, 1.2);
  Take(&times, 20, 3, 1, 0);
  EXPECT_NEAR(times.factor(), 1.2, 1e-6) << "many short steps weigh little";
  Take(&times, 32, 50);
  EXPECT_EQ(times.factor(), core::MeasuredRatio::kMost);
  Take(&times, 32, 0.01);
  EXPECT_EQ(times.factor(), core::MeasuredRatio::kLeast);
}

TEST(CorrectedStepTimes, StepsWithoutPromptsAreIgnored) {
  const ThinksTooFast model(1);
  core::CorrectedStepTimes times(&model);
  Take(&times, 50, 3, 0, 8);
  EXPECT_EQ(times.factor(), 1);
}

// With exact predictions no time changes, to the nanosecond.
TEST(CorrectedStepTimes, ExactModelStaysExact) {
  const ThinksTooFast model(3);
  core::CorrectedStepTimes times(&model);
  for (int i = 1; i < 200; ++i) Take(&times, 1, 1, i, i % 7);
  EXPECT_EQ(times.factor(), 1);
  StepShape shape;
  shape.decodes = 7;
  EXPECT_EQ(times.StepTimeNs(shape), model.StepTimeNs(shape));
}

// A machine 1.5 times slower than its profile, with an objective of 10 ms.
struct SlowMachine : ::testing::Test {
  SlowMachine() {
    config.num_blocks = 4000;
    config.max_model_len = 4096;
    config.max_queue = 16;
    config.prefix_caching = false;
    config.check_every_pass = false;
    config.executor.step_token_ns = 100 * kMicrosecond;
    config.scheduler.limits.step_time = &model;
    config.scheduler.limits.tbt_slo_ns = 10 * kMillisecond;
    config.corrected = true;
  }
  // A stream decodes while two long prompts are computed. Returns the records of steps with both, in order.
  std::vector<core::StepRecord> Run() {
    Harness h(config);
    Request stream = MakeRequest(Tokens(1, 20), 400);
    stream.stop.ignore_eos = true;
    h.MustSubmit(stream);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(h.Settle(), "");
      h.Advance();
    }
    for (uint64_t p = 2; p < 4; ++p) h.MustSubmit(MakeRequest(Tokens(p, 1500), 4));
    EXPECT_EQ(h.Run(), "");
    hash = h.loop().plan_hash();
    correction = h.loop().Stats().step_time_correction;
    std::vector<core::StepRecord> prompts;
    for (const core::StepRecord& r : h.records()) {
      if (r.prefill_tokens > 0 && r.decode_tokens > 0) prompts.push_back(r);
    }
    EXPECT_TRUE(h.CloseTrace().ok());
    return prompts;
  }
  const ThinksTooFast model{1.5};
  HarnessConfig config;
  uint64_t hash = 0;
  double correction = 0;
};

TEST_F(SlowMachine, MeetsTheObjectiveAfterCorrection) {
  const std::vector<core::StepRecord> steps = Run();
  ASSERT_GT(steps.size(), 20u);
  EXPECT_NEAR(correction, 1.5, 0.001);
  for (size_t i = 0; i < steps.size(); ++i) {  // the stream's prompt has already corrected the model
    EXPECT_LE(steps[i].end_ns - steps[i].start_ns, 10 * kMillisecond) << "step " << steps[i].step;
    EXPECT_NEAR(static_cast<double>(steps[i].predicted_ns), static_cast<double>(steps[i].end_ns - steps[i].start_ns),
                1e4)
        << "the prediction is the corrected one";
  }
  config.corrected = false;
  const std::vector<core::StepRecord> wrong = Run();
  EXPECT_GT(wrong[wrong.size() / 2].end_ns - wrong[wrong.size() / 2].start_ns, 14 * kMillisecond);
  EXPECT_EQ(wrong.back().predicted_ns, 0);
}

TEST_F(SlowMachine, RecordingReplaysToTheSamePlans) {
  config.trace_path =
      (std::filesystem::temp_directory_path() / fmt::format("tactus_corrected_{}.trace", getpid())).string();
  Run();
  const auto replay = core::ReplayTrace(config.trace_path);
  std::filesystem::remove(config.trace_path);
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  EXPECT_TRUE(replay->identical() && replay->complete) << "differs at " << replay->first_difference;
  EXPECT_EQ(replay->plan_hash_replayed, hash);
}

// Steps of a pipeline wait for other stages, which is no error of the model.
TEST_F(SlowMachine, PipelinesAreNotCorrected) {
  config.scheduler.limits.pipeline_steps = 2;
  config.executor.max_in_flight = 2;
  Run();
  EXPECT_EQ(correction, 1);
}

}  // namespace
}  // namespace tactus::testing
