// What the machine's backend reports, plans and creates.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/clock.h"
#include "compute/exec/make_backend.h"
#include "support/source_path.h"

namespace tactus::compute {
namespace {

class BackendTest : public testing::Test {
 protected:
  void SetUp() override {
    auto description = DescribeModel(test::SourcePath("tests/golden/data/llama-gqa"));
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    description_ = *description;
  }
  Result<std::unique_ptr<Backend>> Make(const std::function<void(EngineOptions*)>& change = {}) {
    EngineOptions o;
    o.threads = 2;
    if (change) change(&o);
    return MakeBackend(o, description_, clock_);
  }
  MemoryDemand Demand() const {
    MemoryDemand demand;
    demand.max_num_seqs = 4;
    demand.max_step_tokens = 64;
    demand.kv_bytes = 1 << 20;
    return demand;
  }

  ModelDescription description_;
  ManualClock clock_{1000};  // does not advance: nothing here may wait for it
};

TEST_F(BackendTest, InfoDescribesDevicesAndKernels) {
  const auto backend = Make();
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  const BackendInfo info = (*backend)->Info();
  ASSERT_EQ(info.devices.size(), 1u);
  EXPECT_EQ(info.devices[0].name.rfind("cpu (", 0), 0u) << info.devices[0].name;
  EXPECT_EQ(info.workers, 2);
  EXPECT_EQ(info.remarks.at("threads"), "2");
  EXPECT_EQ(info.remarks.at("kernels"), info.kernels);
  EXPECT_NE(info.summary.find(info.arithmetic), std::string::npos);
}

TEST_F(BackendTest, OptionsThatCannotWorkAreRefusedBeforeAnythingIsLoaded) {
  EXPECT_EQ(Make([](auto* o) { o->kernels = "abacus"; }).status().param(), "kernels");
  EXPECT_FALSE(Make([](auto* o) { o->dtype = "float32", o->quantization = "int8"; }).ok());
}

TEST_F(BackendTest, PlansContextBlocksAndSwap) {
  const auto backend = Make();
  ASSERT_TRUE(backend.ok());
  MemoryDemand demand = Demand();
  const auto plan = (*backend)->PlanMemory(demand);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_GT(plan->num_blocks, 0);
  EXPECT_EQ(plan->swap_blocks, 0);
  EXPECT_GT(plan->max_model_len, 0);
  EXPECT_NE(plan->text.find("memory plan"), std::string::npos);
  EXPECT_EQ(plan->text.find("rules of answers"), std::string::npos);
  demand.rules_bytes = int64_t{1} << 61;
  EXPECT_EQ((*backend)->PlanMemory(demand).status().code(), StatusCode::kInvalidArgument);
  demand.rules_bytes = 30 << 20;
  demand.draft_bytes = 10 << 20;
  EXPECT_NE((*backend)->PlanMemory(demand)->text.find("      40 MiB   for rules of answers"), std::string::npos);
  demand.rules_bytes = demand.draft_bytes = 0;
  demand.swap_bytes = 2 << 20;
  EXPECT_EQ((*backend)->PlanMemory(demand)->swap_blocks, 2 * plan->num_blocks);
  demand.max_model_len = description_.config.max_position + 1;
  EXPECT_EQ((*backend)->PlanMemory(demand).status().param(), "max-model-len");
}

TEST_F(BackendTest, ItsExecutorMeasuresWithTheGivenClock) {
  const auto backend = Make();
  ASSERT_TRUE(backend.ok());
  const auto plan = (*backend)->PlanMemory(Demand());
  ASSERT_TRUE(plan.ok());
  const auto format = (*backend)->LoadWeights({});
  ASSERT_TRUE(format.ok()) << format.status().ToString();
  EXPECT_NE(*format, "");
  ExecutorSize size;
  size.num_blocks = plan->num_blocks;
  size.max_model_len = plan->max_model_len;
  size.max_slots = size.max_step_items = 4;
  size.max_step_tokens = 64;
  auto executor = (*backend)->CreateExecutor(size);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  StepPlan empty;
  empty.step = 0;
  std::mutex mutex;
  std::condition_variable ready;
  bool woken = false;
  (*executor)->SetWakeup([&] {
    std::lock_guard lock(mutex);
    woken = true;
    ready.notify_all();
  });
  (*executor)->Submit(empty);
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(ready.wait_for(lock, std::chrono::seconds(60), [&] { return woken; })) << "no step ended";
  }
  StepResult result;
  ASSERT_TRUE((*executor)->Poll(&result));
  EXPECT_EQ(result.start_ns, 1000);
  EXPECT_EQ(result.end_ns, 1000);
}

}  // namespace
}  // namespace tactus::compute
