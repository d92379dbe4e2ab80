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

}  // namespace
}  // namespace tactus::sim::together_test
