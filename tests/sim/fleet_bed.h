// Simulated fleets for tests: small replicas, a run to its end, and its results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "results/obs/run_result.h"
#include "sim/linear_model.h"
#include "sim/simulator/simulator.h"

namespace tactus::sim {

// Replicas with 64 sequences and 300 blocks of 16 tokens, which is little KV memory.
inline SimulationConfig SmallFleet(const StepTimeModel& model, int32_t replicas, const std::string& balancer) {
  SimulationConfig c;
  c.step_time = &model;
  c.scheduler.preset = "sarathi-serve";
  c.scheduler.limits.max_num_seqs = 64;
  c.scheduler.limits.max_model_len = 4096;
  c.scheduler.limits.blocks_total = 300;
  c.scheduler.limits.block_size = 16;
  c.replicas = replicas;
  c.balancer = balancer;
  return c;
}

// Migration with host memory for a replica's whole KV memory.
inline SimulationConfig::Migration MovesAt(double bytes_per_s) {
  return {bytes_per_s, kMillisecond, 1 << 17, 300};
}

struct FleetAnswer {
  int32_t replica = 0, tokens = 0;
  double gap_ms = 0;  // mean time between two tokens
};

struct FleetRun {
  SortedJson json;
  std::vector<uint64_t> plan_hashes;
  std::map<int64_t, FleetAnswer> answers;  // by index in the workload
};

inline FleetRun RunFleet(SimulationConfig c, const std::string& workload, double rate, int64_t count) {
  FleetRun run;
  c.on_done = [&](const WorkloadRequest& work, int32_t replica, const core::RequestDoneEvent& d) {
    const double gap_ms =
        static_cast<double>(d.done_ns - d.first_token_ns) * 1e-6 / std::max(1, d.completion_tokens - 1);
    const FleetAnswer answer{replica, d.completion_tokens, gap_ms};
    EXPECT_TRUE(run.answers.emplace(work.index, answer).second) << "request " << work.index << " ended twice";
    EXPECT_GE(d.first_token_ns, d.arrival_ns);
  };
  auto stream = WorkloadStream::Open(*ParseWorkload(workload), *ParseArrivals("poisson", rate), count, 1);
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  auto simulation = Simulation::Create(c, stream->get());
  EXPECT_TRUE(simulation.ok()) << simulation.status().ToString();
  EXPECT_TRUE((*simulation)->Run().ok());
  EXPECT_TRUE((*simulation)->finished());
  run.json = SortedJson::parse(ToJson((*simulation)->Outcome()));
  run.plan_hashes = (*simulation)->plan_hashes();
  return run;
}

}  // namespace tactus::sim
