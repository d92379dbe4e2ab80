// A simulated fleet with autoscaling, and headroom for requests of high priority.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "sim/fleet_bed.h"

namespace tactus::scaling_test {
namespace {

sim::SimulationConfig Config(const StepTimeModel& model) {
  sim::SimulationConfig c = sim::SmallFleet(model, 6, "llumnix");
  c.migration = sim::MovesAt(8e9);
  c.seed = 5;
  return c;
}

sim::SimulationConfig Scaled(const StepTimeModel& model) {
  sim::SimulationConfig c = Config(model);
  c.scaling = {.least = 1, .start_below = 10, .drain_above = 60, .after_ns = kSecond / 2, .starting_ns = 2 * kSecond};
  return c;
}

TEST(SimulatedScaling, TheNumberOfReplicasFollowsTheLoad) {
  sim::LinearModel model;
  const sim::FleetRun busy = sim::RunFleet(Scaled(model), "random:in=300,out=200", 60, 600);
  ASSERT_FALSE(busy.json["scaling"].is_null());
  EXPECT_EQ(busy.json["requests"]["completed"], 600);
  EXPECT_EQ(busy.json["scaling"]["least"], 1);
  EXPECT_EQ(busy.json["scaling"]["most"], 6);
  EXPECT_GT(busy.json["scaling"]["started"], 0) << "one replica was enough";
  std::map<int32_t, int> served;
  for (const auto& [index, answer] : busy.answers) ++served[answer.replica];
  EXPECT_GT(served.size(), 2u);
  const double used = busy.json["scaling"]["mean_replicas"];
  EXPECT_GT(used, 1.5);
  EXPECT_LT(used, 6) << "all replicas from start to end";
  const sim::FleetRun calm = sim::RunFleet(Scaled(model), "random:in=300,out=200", 1, 100);
  EXPECT_EQ(calm.json["scaling"]["started"], 0);
  EXPECT_EQ(calm.json["scaling"]["mean_replicas"], 1.0);
  for (const auto& [index, answer] : calm.answers)
    EXPECT_EQ(answer.replica, 0) << "a replica that is off took " << index;
}

// With a minimum of two replicas and a load for one, extra replicas are drained and their requests end elsewhere.
TEST(SimulatedScaling, UnneededReplicasAreDrained) {
  sim::LinearModel model;
  sim::SimulationConfig c = Scaled(model);
  // A burst at the start, then one request at a time.
  const std::string path = ::testing::TempDir() + "tactus_scaling_" + std::to_string(getpid()) + ".csv";
  {
    std::ofstream file(path);
    file << "arrival_s,prompt_tokens,output_tokens\n";
    for (int i = 0; i < 200; ++i) file << "0,300,200\n";
    for (int i = 0; i < 60; ++i) file << 20 + i << ",100,20\n";
  }
  const sim::FleetRun outcome = sim::RunFleet(c, "trace:" + path, 0, 260);
  std::remove(path.c_str());
  EXPECT_EQ(outcome.json["requests"]["completed"], 260);
  const auto& scaling = outcome.json["scaling"];
  EXPECT_GT(scaling["started"], 0);
  EXPECT_EQ(scaling["drained"], scaling["started"]) << "one replica is left, as at the start:  " << scaling.dump();
}

TEST(SimulatedScaling, FollowsTheSeed) {
  sim::LinearModel model;
  EXPECT_EQ(sim::RunFleet(Scaled(model), "random:in=300,out=200", 60, 300).plan_hashes,
            sim::RunFleet(Scaled(model), "random:in=300,out=200", 60, 300).plan_hashes);
  EXPECT_TRUE(sim::RunFleet(Config(model), "random:in=300,out=200", 60, 100).json["scaling"].is_null());
}

// One request in ten has high priority. With headroom they share their replica with fewer others and get tokens faster;
// without it they are like all others.
TEST(SimulatedHeadroom, HighPriorityHasFasterSteps) {
  sim::LinearModel model;
  model.decode_ns = kMillisecond;  // a step's time grows with its sequences
  const std::string path = ::testing::TempDir() + "tactus_headroom_" + std::to_string(getpid()) + ".csv";
  {
    std::ofstream file(path);
    file << "prompt_tokens,output_tokens,priority\n";
    for (int i = 0; i < 500; ++i) file << "200,150," << (i % 10 == 0 ? -1 : 0) << "\n";
  }
  const auto mean_gap = [&](int64_t headroom, bool high) {
    sim::SimulationConfig c = Config(model);
    c.priority_headroom = headroom;
    const sim::FleetRun outcome = sim::RunFleet(c, "lengths:" + path, 30, 500);
    EXPECT_EQ(outcome.json["requests"]["completed"], 500);
    double sum = 0;
    int count = 0;
    for (const auto& [index, answer] : outcome.answers) {
      if ((index % 10 == 0) != high) continue;
      sum += answer.gap_ms;
      ++count;
    }
    return sum / count;
  };
  const double with = mean_gap(4200, true), without = mean_gap(0, true);
  std::remove(path.c_str());
  EXPECT_LT(with, 0.9 * without);
}

}  // namespace
}  // namespace tactus::scaling_test
