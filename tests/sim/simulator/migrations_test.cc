// Simulated replicas with migrations: every answer is complete wherever it ends, sequences move to free memory, the
// bytes take time, and the recordings of all replicas replay.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "core/trace/replay.h"
#include "sim/fleet_bed.h"

namespace tactus::migrations_test {
namespace {

constexpr int32_t kReplicas = 4;

// Little KV memory, and a balancer that ignores load: some replicas lack memory while others have free blocks.
sim::SimulationConfig Config(const StepTimeModel& model, double bytes_per_s) {
  sim::SimulationConfig c = sim::SmallFleet(model, kReplicas, "random");
  c.scheduler.preset = "vllm";
  c.seed = 5;
  if (bytes_per_s > 0) c.migration = sim::MovesAt(bytes_per_s);
  return c;
}

sim::FleetRun Simulate(const sim::SimulationConfig& c, double rate = 60, int64_t count = 400,
                       const std::string& workload = "random:in=300,out=200") {
  return sim::RunFleet(c, workload, rate, count);
}

std::map<int64_t, int32_t> LengthsOf(const sim::FleetRun& run) {
  std::map<int64_t, int32_t> lengths;
  for (const auto& [index, answer] : run.answers) lengths[index] = answer.tokens;
  return lengths;
}

TEST(SimulatedMigrations, MoveSequencesToReplicasWithRoom) {
  sim::LinearModel model;
  const sim::FleetRun stay = Simulate(Config(model, 0)), move = Simulate(Config(model, 8e9));
  EXPECT_TRUE(stay.json["migrations"].is_null());
  ASSERT_FALSE(move.json["migrations"].is_null());
  EXPECT_GT(move.json["migrations"]["moved"], 10);
  EXPECT_GT(move.json["migrations"]["tokens"], 1000);
  ASSERT_GT(stay.json["preemptions"], 20) << "no replica was ever short of memory";
  EXPECT_LT(move.json["preemptions"], stay.json["preemptions"].get<double>() * 0.8);
  EXPECT_EQ(move.json["requests"]["completed"], 400);
  EXPECT_EQ(LengthsOf(move), LengthsOf(stay)) << "a moved answer has a different length";
  EXPECT_EQ(move.json["output_token_throughput"].get<double>() * move.json["duration_s"].get<double>(),
            stay.json["output_token_throughput"].get<double>() * stay.json["duration_s"].get<double>());
}

// A chosen sequence reserves blocks for its whole prompt, and one that is preempted during the move continues without
// KV. So few moves fail, although every replica runs out of memory at times and prompts are long.
TEST(SimulatedMigrations, FewMovesFail) {
  sim::LinearModel model;
  for (const char* prompts : {"random:in=300,out=200", "random:in=2000,out=60"}) {
    SCOPED_TRACE(prompts);
    const auto moves = Simulate(Config(model, 8e9), 60, 400, prompts).json["migrations"];
    const int64_t moved = moves["moved"], failed = moves["failed"];
    EXPECT_GT(moved, 5);
    EXPECT_LT(failed, moved / 4) << moves.dump();
    EXPECT_EQ(moves["outgrew"], 0) << "room was reserved for less than the prompt";
    EXPECT_LT(moves["no_room"], failed / 2 + 3) << "a sequence was sent to a replica without room";
    EXPECT_EQ(failed, moves["ended"].get<int64_t>() + moves["outgrew"].get<int64_t>() +
                          moves["no_room"].get<int64_t>() + moves["refused"].get<int64_t>());
  }
}

TEST(SimulatedMigrations, DependOnSeedAndBandwidth) {
  sim::LinearModel model;
  EXPECT_EQ(Simulate(Config(model, 8e9)).plan_hashes, Simulate(Config(model, 8e9)).plan_hashes);
  const sim::FleetRun slow = Simulate(Config(model, 1e7));  // seconds per move
  EXPECT_EQ(slow.json["requests"]["completed"], 400);
  EXPECT_LT(slow.json["migrations"]["moved"], Simulate(Config(model, 8e9)).json["migrations"]["moved"]);
}

TEST(SimulatedMigrations, EveryReplicasRecordingReplays) {
  sim::LinearModel model;
  const std::string path = ::testing::TempDir() + "tactus_sim_migrations_" + std::to_string(getpid());
  sim::SimulationConfig c = Config(model, 8e9);
  c.trace_out = path;
  const sim::FleetRun outcome = Simulate(c, 60, 150);
  EXPECT_GT(outcome.json["migrations"]["moved"], 3);
  int64_t moved = 0;
  for (int32_t i = 0; i < kReplicas; ++i) {
    const std::string file = path + "." + std::to_string(i);
    const auto report = core::ReplayTrace(file);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(report->identical()) << "replica " << i << " differs at step " << report->first_difference;
    moved += report->stats.migrated_in;
    std::remove(file.c_str());
  }
  EXPECT_EQ(moved, outcome.json["migrations"]["moved"]);
}

}  // namespace
}  // namespace tactus::migrations_test
