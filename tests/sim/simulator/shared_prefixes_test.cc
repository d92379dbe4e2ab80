// Plans of a simulation with cascade attention: shared prefixes of decodes.
#include <gtest/gtest.h>

#include "results/obs/run_result.h"
#include "sim/linear_model.h"
#include "sim/simulator/simulator.h"
#include "sim/small_engine.h"

namespace tactus::sim {
namespace {

// Requests with one common prompt prefix of 256 tokens: with cascade attention the plans list which decodes share it
// and are otherwise unchanged; without it they list none.
TEST(SharedPrefixes, PlansListSharedPrefixesWithCascadeAttention) {
  LinearModel model;
  std::vector<StepPlan> plans[2];
  std::string results[2];
  for (const bool cascade : {false, true}) {
    SimulationConfig c = SmallEngine(model);
    c.cascade_attention = cascade;
    c.on_step = [&](int32_t, const StepPlan& plan, TimeNs, TimeNs) { plans[cascade].push_back(plan); };
    auto stream = WorkloadStream::Open(*ParseWorkload("prefix:shared=256,unique=30,out=20"),
                                       *ParseArrivals("poisson", 100), 40, 1);
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    auto simulation = Simulation::Create(c, stream->get());
    ASSERT_TRUE(simulation.ok()) << simulation.status().ToString();
    ASSERT_TRUE((*simulation)->Run().ok());
    results[cascade] = ToJson((*simulation)->Outcome());
  }
  EXPECT_EQ(results[0], results[1]) << "a model that ignores prefixes has the same times";
  ASSERT_EQ(plans[0].size(), plans[1].size());
  int64_t sharing = 0;
  for (size_t i = 0; i < plans[1].size(); ++i) {
    EXPECT_TRUE(plans[0][i].prefixes.empty());
    const StepPlan& plan = plans[1][i];
    const auto decodes = static_cast<int64_t>(plan.items.size() - plan.prompt_items.size());
    EXPECT_LE(plan.prefixes.size(), 1u) << "there is one prefix";
    for (const PrefixShape& prefix : plan.prefixes) {
      EXPECT_EQ(prefix.tokens, 256) << "step " << i;
      EXPECT_GE(prefix.decodes, 2);
      EXPECT_LE(prefix.decodes, decodes);
      sharing += prefix.decodes;
    }
  }
  EXPECT_GE(sharing, 200) << "most decodes share the prefix";
}

}  // namespace
}  // namespace tactus::sim
