// Replicas with every balancer: the fleet's counts match the replicas' state.
#include <gtest/gtest.h>

#include "fleet/balance/balancer.h"
#include "sim/fleet_bed.h"

namespace tactus::balancers_test {
namespace {

sim::SimulationConfig Config(const StepTimeModel& model, const std::string& balancer) {
  sim::SimulationConfig c = sim::SmallFleet(model, 4, balancer);
  c.scheduler.limits.max_num_seqs = 32;
  c.scheduler.limits.blocks_total = 600;
  c.scheduler.limits.unlimited_steps = true;
  return c;
}

TEST(SimulatedBalancers, ServeEveryRequestAndFollowTheSeed) {
  sim::LinearModel model;
  for (const fleet::BalancerInfo& info : fleet::Balancers()) {
    SCOPED_TRACE(info.name);
    const sim::SimulationConfig c = Config(model, info.name);
    const sim::FleetRun first = sim::RunFleet(c, "multi-turn:turns=3,in=200,out=30", 20, 300);
    EXPECT_EQ(first.json["requests"]["completed"], 300);
    EXPECT_EQ(first.plan_hashes, sim::RunFleet(c, "multi-turn:turns=3,in=200,out=30", 20, 300).plan_hashes);
  }
}

// Later turns of a conversation find the KV of earlier turns on the replica that ran them.
TEST(SimulatedBalancers, PrefixAffinityFindsEarlierTurns) {
  sim::LinearModel model;
  const auto sharing = [&](const char* balancer) {
    return sim::RunFleet(Config(model, balancer), "multi-turn:turns=4,in=300,out=30", 10, 400)
        .json["prefix_sharing"]
        .get<double>();
  };
  const double with = sharing("prefix-affinity"), without = sharing("round-robin");
  EXPECT_GT(with, 1.5 * without) << "only one of four replicas has a turn's history";
}

// Requests of very different lengths: a balancer that knows queues in tokens keeps the longest waits short.
TEST(SimulatedBalancers, SalKeepsTheLongestWaitsShort) {
  sim::LinearModel model;
  const auto p95 = [&](const char* balancer) {
    return sim::RunFleet(Config(model, balancer), "code", 130, 3000).json["ttft_ms"]["p95"].get<double>();
  };
  EXPECT_LT(p95("sal"), 0.6 * p95("random"));
}

// Only balancers that use the replicas' states depend on the polling rate.
TEST(SimulatedBalancers, OtherBalancersDoNotPollReplicas) {
  sim::LinearModel model;
  for (const char* balancer : {"round-robin", "p2c", "prefix-affinity"}) {
    sim::SimulationConfig often = Config(model, balancer), seldom = often;
    often.balancer_polls = 1000;
    seldom.balancer_polls = 0.01;
    EXPECT_EQ(sim::RunFleet(often, "chat", 20, 200).plan_hashes, sim::RunFleet(seldom, "chat", 20, 200).plan_hashes)
        << balancer;
  }
}

}  // namespace
}  // namespace tactus::balancers_test
