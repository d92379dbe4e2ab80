// Replicas that share experts: their steps begin and end together.
#include <gtest/gtest.h>

#include "sim/fleet_bed.h"

namespace tactus::sim::together_test {
namespace {

struct Pairs final : StepTimeModel {
  LinearModel one;
  DurationNs StepTimeNs(const StepShape& s) const override { return one.StepTimeNs(s); }
  int32_t replicas_together() const override { return 2; }
};

struct Span {
  TimeNs start, end;
};

TEST(SimulatedExperts, ReplicasThatShareThemStepTogether) {
  const Pairs model;
  SimulationConfig c = SmallFleet(model, 4, "round-robin");
  std::vector<std::vector<Span>> steps(4);
  c.on_step = [&](int32_t replica, const StepPlan&, TimeNs start, TimeNs end) {
    steps[static_cast<size_t>(replica)].push_back({start, end});
  };
  const FleetRun run = RunFleet(c, "multi-turn:turns=3,in=200,out=30", 20, 100);
  EXPECT_EQ(run.json["requests"]["completed"], 100);
  int64_t together = 0, unequal = 0;
  for (const size_t first : {0u, 2u}) {
    for (const Span& a : steps[first]) {
      for (const Span& b : steps[first + 1]) {
        if (b.end <= a.start || a.end <= b.start) continue;
        EXPECT_TRUE(a.start == b.start && a.end == b.end) << a.start << " to " << a.end << ", " << b.start;
        ++together;
      }
      for (const Span& b : steps[2 - first]) unequal += b.start < a.end && a.start < b.end && b.start != a.start;
    }
  }
  EXPECT_GT(together, 100);
  EXPECT_GT(unequal, 100) << "two pairs do not wait for each other";
  EXPECT_EQ(run.plan_hashes, RunFleet(c, "multi-turn:turns=3,in=200,out=30", 20, 100).plan_hashes);
}

// A prompt on one replica delays the answers of the other.
TEST(SimulatedExperts, ReplicasWaitForTheSlowest) {
  Pairs model;
  model.one.prefill_ns = 200'000;
  const auto gap_ms = [](const StepTimeModel& of) {
    return RunFleet(SmallFleet(of, 2, "round-robin"), "chat", 3, 60).json["tbt_ms"]["p50"].get<double>();
  };
  EXPECT_GT(gap_ms(model), gap_ms(model.one));
}

// The model gets a step of each replica with its slowness, also of one without tokens.
TEST(SimulatedExperts, TheirStepsHaveEachReplicasSlowness) {
  struct Watching final : StepTimeModel {
    Pairs pairs;
    mutable int64_t both = 0, one = 0;
    DurationNs StepTimeNs(const StepShape& s) const override { return pairs.StepTimeNs(s); }
    int32_t replicas_together() const override { return 2; }
    DurationNs TogetherNs(std::span<const JointStep> steps) const override {
      EXPECT_TRUE(steps.size() == 2 && steps[0].factor == 1 && steps[1].factor == 4);
      (steps[0].shape.tokens() > 0 && steps[1].shape.tokens() > 0 ? both : one) += 1;
      return pairs.TogetherNs(steps);
    }
  };
  const Watching model;
  SimulationConfig c = SmallFleet(model, 2, "round-robin");
  c.slowness = {1, 4};
  EXPECT_EQ(RunFleet(c, "random:in=200,out=200", 2, 40).json["requests"]["completed"], 40);
  EXPECT_GT(model.both, 0);
  EXPECT_GT(model.one, 0);
}

// The largest of 16 draws would be 18 % above the median.
TEST(SimulatedExperts, AJointStepVariesOnce) {
  struct Constant final : StepTimeModel {
    DurationNs StepTimeNs(const StepShape&) const override { return kMillisecond; }
    int32_t replicas_together() const override { return 16; }
  };
  const Constant model;
  SimulationConfig c = SmallFleet(model, 16, "round-robin");
  c.step_spread = {0.1, 0.1};
  std::vector<DurationNs> took;
  c.on_step = [&](int32_t, const StepPlan&, TimeNs start, TimeNs end) { took.push_back(end - start); };
  RunFleet(c, "random:in=20,out=50", 1000, 400);
  ASSERT_GT(took.size(), 1000u);
  std::nth_element(took.begin(), took.begin() + took.size() / 2, took.end());
  EXPECT_NEAR(static_cast<double>(took[took.size() / 2]), 1e6, 0.05e6);
}

// A request waits for the end of the step that runs and is in the next, even if another one came before it to a replica
// without a step.
TEST(SimulatedExperts, ARequestIsInTheNextJointStep) {
  Pairs model;
  model.one.base_ns = kSecond;
  model.one.prefill_ns = 1000;
  const FleetRun run = RunFleet(SmallFleet(model, 2, "round-robin"), "random:in=10,out=1", 4, 200);
  EXPECT_LE(run.json["ttft_ms"]["max"].get<double>(), 2100);
}

// Predictions are those of equal steps. Where joint steps take twice as long, budgets follow the results.
TEST(SimulatedExperts, PredictionsLearnFromJointSteps) {
  struct Twice final : StepTimeModel {
    Pairs pairs;
    DurationNs StepTimeNs(const StepShape& s) const override { return pairs.StepTimeNs(s); }
    int32_t replicas_together() const override { return 2; }
    DurationNs TogetherNs(std::span<const JointStep> steps) const override { return 2 * pairs.TogetherNs(steps); }
  };
  const Twice model;
  SimulationConfig c = SmallFleet(model, 2, "round-robin");
  c.scheduler.limits.token_budget = 0;
  c.scheduler.limits.tbt_slo_ns = 20 * kMillisecond;
  int64_t steps = 0, longer = 0;
  c.on_step = [&](int32_t, const StepPlan&, TimeNs start, TimeNs end) {
    ++steps;
    longer += end - start > 21 * kMillisecond;
  };
  RunFleet(c, "random:in=2000,out=40", 8, 100);
  EXPECT_LT(longer, steps / 20);
}

}  // namespace
}  // namespace tactus::sim::together_test
