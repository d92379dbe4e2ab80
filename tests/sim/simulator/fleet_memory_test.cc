// The memory of a large fleet: a replica takes what it uses, not what it could use at most. That this changes no plan
// is tested with the loop (tests/core/loop/step_loop_test.cc).
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include <unistd.h>

#include "sim/fleet_bed.h"
#include "sim/sim_options.h"

namespace tactus::fleet_memory_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // their own memory is counted too
#else
constexpr bool kSanitized = false;
#endif

double ResidentMib() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0;
  in >> size >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// An 8B model on an H100: 28,408 blocks of KV memory and room for 2,304 sequences at each replica.
TEST(FleetMemory, AReplicaTakesWhatItUses) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory would be counted too";
  constexpr int64_t kReplicas = 128;
  sim::SimOptions o;
  o.model = "llama-3.1-8b";
  o.device = "h100";
  o.workload = "chat";
  o.replicas = kReplicas;
  o.rate = 10 * kReplicas;
  o.requests = 10 * kReplicas;
  auto setup = sim::SetUpSimulation(o, {});
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  const double before = ResidentMib();
  auto simulation = sim::Simulation::Create(setup->config, setup->workload.get());
  ASSERT_TRUE(simulation.ok()) << simulation.status().ToString();
  EXPECT_LT((ResidentMib() - before) / kReplicas, 0.5) << "MiB of a replica without requests";
  ASSERT_TRUE((*simulation)->Run().ok());
  EXPECT_EQ((*simulation)->Outcome().completed, 10 * kReplicas);
  EXPECT_LT((ResidentMib() - before) / kReplicas, 1.0) << "MiB of a replica that has run ten requests";
}

}  // namespace
}  // namespace tactus::fleet_memory_test
