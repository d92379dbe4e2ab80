// Simulated replicas that move sequences: every answer is whole wherever it ends, room is found where it is, the bytes
// take their time, and the recordings of all replicas replay.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "base/json.h"
#include "obs/run_result.h"
#include "sim/linear_model.h"
#include "sim/simulator.h"
#include "trace/replay.h"

namespace tactus::migrations_test {
namespace {

constexpr int32_t kReplicas = 4;

// Little KV memory, and a balancer that goes by nothing: some replicas are short of it while others have room.
SimulationConfig Config(const StepTimeModel& model, double bytes_per_s) {
  SimulationConfig c;
  c.step_time = &model;
  c.scheduler.preset = "vllm";
  c.scheduler.limits.max_num_seqs = 64;
  c.scheduler.limits.max_model_len = 4096;
  c.scheduler.limits.blocks_total = 300;
  c.scheduler.limits.block_size = 16;
  c.replicas = kReplicas;
  c.balancer = "random";
  c.seed = 5;
  if (bytes_per_s > 0) c.migration = {bytes_per_s, kMillisecond, 1 << 17, 300};
  return c;
}

struct Outcome {
  SortedJson json;
  std::vector<uint64_t> plan_hashes;
  std::map<int64_t, int32_t> output_tokens;  // by index in the workload
};

Outcome Simulate(SimulationConfig c, double rate = 60, int64_t count = 400,
                 const std::string& workload = "random:in=300,out=200") {
  Outcome outcome;
  c.on_done = [&](const WorkloadRequest& work, int32_t, const RequestDoneEvent& d) {
    EXPECT_TRUE(outcome.output_tokens.emplace(work.index, d.completion_tokens).second) << "it ended twice";
    EXPECT_GE(d.first_token_ns, d.arrival_ns);
  };
  auto stream = WorkloadStream::Open(*ParseWorkload(workload), *ParseArrivals("poisson", rate), count, 1);
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  auto simulation = Simulation::Create(c, stream->get());
  EXPECT_TRUE(simulation.ok()) << simulation.status().ToString();
  EXPECT_TRUE((*simulation)->Run().ok());
  EXPECT_TRUE((*simulation)->finished());
  outcome.json = SortedJson::parse(ToJson((*simulation)->Outcome()));
  outcome.plan_hashes = (*simulation)->plan_hashes();
  return outcome;
}

TEST(SimulatedMigrations, MoveSequencesToWhereThereIsRoom) {
  LinearModel model;
  const Outcome stay = Simulate(Config(model, 0)), move = Simulate(Config(model, 8e9));
  EXPECT_TRUE(stay.json["migrations"].is_null());
  ASSERT_FALSE(move.json["migrations"].is_null());
  EXPECT_GT(move.json["migrations"]["moved"], 10);
  EXPECT_GT(move.json["migrations"]["tokens"], 1000);
  ASSERT_GT(stay.json["preemptions"], 20) << "nobody was ever short of memory";
  EXPECT_LT(move.json["preemptions"], stay.json["preemptions"].get<double>() * 0.8);
  EXPECT_EQ(move.json["requests"]["completed"], 400);
  EXPECT_EQ(move.output_tokens, stay.output_tokens) << "an answer has another length where it moved";
  EXPECT_EQ(move.json["output_token_throughput"].get<double>() * move.json["duration_s"].get<double>(),
            stay.json["output_token_throughput"].get<double>() * stay.json["duration_s"].get<double>());
}

// What is chosen counts with its whole prompt and finds its room, and what loses its KV on the way moves without it:
// few moves come to nothing, though every replica is short of memory now and then and prompts are long.
TEST(SimulatedMigrations, FewMovesFail) {
  LinearModel model;
  for (const char* prompts : {"random:in=300,out=200", "random:in=2000,out=60"}) {
    SCOPED_TRACE(prompts);
    const auto moves = Simulate(Config(model, 8e9), 60, 400, prompts).json["migrations"];
    const int64_t moved = moves["moved"], failed = moves["failed"];
    EXPECT_GT(moved, 5);
    EXPECT_LT(failed, moved / 4) << moves.dump();
    EXPECT_EQ(moves["outgrew"], 0) << "room was reserved for less than the prompt";
    EXPECT_LT(moves["no_room"], failed / 2 + 3) << "it was sent where it does not fit";
    EXPECT_EQ(failed, moves["ended"].get<int64_t>() + moves["outgrew"].get<int64_t>() +
                          moves["no_room"].get<int64_t>() + moves["refused"].get<int64_t>());
  }
}

TEST(SimulatedMigrations, FollowTheSeedAndTheBandwidth) {
  LinearModel model;
  EXPECT_EQ(Simulate(Config(model, 8e9)).plan_hashes, Simulate(Config(model, 8e9)).plan_hashes);
  const Outcome slow = Simulate(Config(model, 1e7));  // seconds for each
  EXPECT_EQ(slow.json["requests"]["completed"], 400);
  EXPECT_LT(slow.json["migrations"]["moved"], Simulate(Config(model, 8e9)).json["migrations"]["moved"]);
}

TEST(SimulatedMigrations, EveryReplicasRecordingReplays) {
  LinearModel model;
  const std::string path = ::testing::TempDir() + "tactus_sim_migrations_" + std::to_string(getpid());
  SimulationConfig c = Config(model, 8e9);
  c.trace_out = path;
  const Outcome outcome = Simulate(c, 60, 150);
  EXPECT_GT(outcome.json["migrations"]["moved"], 3);
  int64_t moved = 0;
  for (int32_t i = 0; i < kReplicas; ++i) {
    const std::string file = path + "." + std::to_string(i);
    const auto report = ReplayTrace(file);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(report->identical()) << "replica " << i << " differs at step " << report->first_difference;
    moved += report->stats.migrated_in;
    std::remove(file.c_str());
  }
  EXPECT_EQ(moved, outcome.json["migrations"]["moved"]);
}

}  // namespace
}  // namespace tactus::migrations_test
