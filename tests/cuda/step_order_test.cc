// Every wait between the streams of steps, and of the host for a step, is needed: without one the emulated device finds
// a race. Two steps are in flight.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "cuda/cuda_runner.h"
#include "cuda/emulator/emulator.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

namespace emulator = compute::cuda::emulator;

constexpr int32_t kBlockTokens = 8, kSlotBlocks = 4, kSlotsOfSteps = 4, kLayers = 2;

// Steps of one model. Slot s has blocks [4 s, 4 s + 4), unless a step gives it others.
class Steps {
 public:
  explicit Steps(const CudaModelOptions& options) {
    const auto description = compute::DescribeModel(SourcePath("tests/golden/data/llama-gqa"));
    Expect(description.status());
    EXPECT_EQ(description->config.num_layers(), kLayers);
    config_ = description->config;
    ExecutorSize size;
    size.num_blocks = kSlotsOfSteps * kSlotBlocks;
    size.swap_blocks = 4;
    size.block_size = kBlockTokens;
    size.max_slots = kSlotsOfSteps;
    size.max_step_tokens = 64;
    size.max_step_items = kSlotsOfSteps;
    size.max_model_len = kSlotBlocks * kBlockTokens;
    auto weights = LoadCudaWeights(*description, options);
    Expect(weights.status());
    auto launcher = compute::cuda::StepLauncher::Create(config_, std::move(*weights), ExecutorOptionsOf(options, size));
    Expect(launcher.status());
    launcher_ = std::move(*launcher);
    for (Entry& entry : ring_) entry.step = launcher_->NewStep();
  }

  // A plan to fill, and its launch.
  StepPlan& Plan() {
    StepPlan& plan = ring_[launched_ % 2].plan;
    plan.Clear();
    plan.step = static_cast<StepId>(launched_);
    return plan;
  }
  void Launch() {
    Entry& entry = ring_[launched_++ % 2];
    launcher_->Launch(entry.plan, entry.step.get());
  }
  StepResult Finish() {
    StepResult result;
    launcher_->Finish(ring_[finished_++ % 2].step.get(), &result);
    return result;
  }
  void FinishAll() {
    while (finished_ < launched_) Finish();
  }

  // Computes `tokens` of a slot's prompt.
  void AddPrompt(SlotId slot, int32_t tokens, std::vector<BlockId> blocks = {}) {
    StepPlan& plan = ring_[launched_ % 2].plan;
    for (BlockId b = slot * kSlotBlocks; blocks.size() < static_cast<size_t>(kSlotBlocks); ++b) blocks.push_back(b);
    plan.starts.emplace_back().slot = slot;
    plan.table_updates.push_back({slot, 0, kSlotBlocks, static_cast<int32_t>(plan.table_blocks.size())});
    plan.table_blocks.insert(plan.table_blocks.end(), blocks.begin(), blocks.end());
    AddTokens(slot, 0, tokens);
  }
  void AddTokens(SlotId slot, int32_t first_position, int32_t tokens) {
    StepPlan& plan = ring_[launched_ % 2].plan;
    plan.items.push_back({.slot = slot,
                          .first_position = first_position,
                          .count = tokens,
                          .logit_rows = 1,
                          .sample = true,
                          .token_offset = static_cast<int32_t>(plan.tokens.size())});
    for (int32_t t = 0; t < tokens; ++t) plan.tokens.push_back(1 + (7 * t + 3 * slot + first_position) % 90);
  }
  const compute::cuda::StepLauncher& launcher() const { return *launcher_; }

 private:
  struct Entry {
    std::unique_ptr<compute::cuda::LaunchedStep> step;
    StepPlan plan;
  };
  static void Expect(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

  compute::ModelConfig config_;
  std::unique_ptr<compute::cuda::StepLauncher> launcher_;
  Entry ring_[2];
  size_t launched_ = 0, finished_ = 0;
};

// What is found in the steps, in one line each, and the waits of those after `first`.
struct Outcome {
  std::string found;
  int64_t waits = 0;
};

struct Scenario {
  CudaModelOptions options;
  std::function<void(Steps&)> before;  // waits for its steps
  std::function<void(Steps&)> steps;
};

// Without the wait after `kept` others; -1: with all.
Outcome RunSteps(const Scenario& scenario, int64_t kept) {
  Outcome outcome;
  Steps steps(scenario.options);
  if (scenario.before) scenario.before(steps);
  const int64_t waits = emulator::CurrentCounts().waits;
  emulator::DropWaitAfter(kept);
  scenario.steps(steps);
  steps.FinishAll();
  outcome.waits = emulator::CurrentCounts().waits - waits;
  for (const std::string& finding : emulator::TakeFindings()) outcome.found += finding + "\n";
  emulator::ResetDevice();
  return outcome;
}

// The waits without which a race is found are `needed`, by their number in the steps; all together they find none.
void ExpectNeeded(const Scenario& scenario, const std::vector<int64_t>& needed, int64_t all) {
  const Outcome whole = RunSteps(scenario, -1);
  EXPECT_EQ(whole.found, "");
  ASSERT_EQ(whole.waits, all);
  std::vector<int64_t> found;
  for (int64_t wait = 0; wait < all; ++wait) {
    const Outcome outcome = RunSteps(scenario, wait);
    if (outcome.found.find("race") != std::string::npos) found.push_back(wait);
  }
  EXPECT_EQ(found, needed);
}

// Part 1 reads what part 0 stores in the same step, layer by layer. Waits of the step: part 1 for the step's data; part
// 1 for part 0's products of layer 0; in turns part 0 for part 1 and part 1 for part 0; the step for part 1; the host.
TEST(StepOrder, TurnsOfTwoPartsAreNeeded) {
  const Scenario scenario = {.options = {.overlap = true}, .steps = [](Steps& s) {
                               s.Plan();
                               s.AddPrompt(0, 24);
                               s.Launch();
                             }};
  // Part 0 waits so that its products do not run beside part 1's; it reads nothing of part 1. Part 1's wait for the
  // data is followed by one for more, and its last products read no K and V.
  ExpectNeeded(scenario, {1, 3, 5}, 7);
}

// A step swaps out a block that the step before it writes, and writes it again.
TEST(StepOrder, SwapOutIsBetweenTheWritesOfItsBlock) {
  const Scenario scenario = {.steps = [](Steps& s) {
    s.Plan();
    s.AddPrompt(0, 12);
    s.Launch();
    s.Plan().swap_outs.push_back({.block = 0, .host_block = 1, .tokens = kBlockTokens});
    s.AddPrompt(1, 12, {0, 5});
    s.Launch();
  }};
  // The swap-out for the step before it, the step for the swap-out.
  ExpectNeeded(scenario, {0, 1}, 4);
}

// The next step writes a block that a step swaps out beside its items, or reads the host's copy.
TEST(StepOrder, StepEndsAfterItsSwapOuts) {
  for (const bool swaps_in : {false, true}) {
    SCOPED_TRACE(swaps_in ? "swapped in" : "written");
    const Scenario scenario = {.steps = [swaps_in](Steps& s) {
      s.Plan();
      s.AddPrompt(0, 12);
      s.Launch();
      s.Plan().swap_outs.push_back({.block = 0, .host_block = 1, .tokens = kBlockTokens});
      s.AddPrompt(1, 12);
      s.Launch();
      s.Finish();
      if (swaps_in) {
        s.Plan().swap_ins.push_back({.block = 10, .host_block = 1, .tokens = kBlockTokens});
        s.AddPrompt(2, 5);
      } else {
        s.Plan();
        s.AddPrompt(2, 12, {0, 9});
      }
      s.Launch();
    }};
    ExpectNeeded(scenario, {0, 1, 2}, 5);
  }
}

// The same where the forward pass is a graph.
TEST(StepOrder, SwapOutsWaitForGraphs) {
  const auto decode = [](Steps& s, int32_t position) {
    StepPlan& plan = s.Plan();
    s.AddTokens(0, position, 1);
    return &plan;
  };
  const Scenario scenario = {
      .before =
          [&](Steps& s) {
            s.Plan();
            s.AddPrompt(0, 8);
            s.Launch();
            for (int32_t position = 8; position < 11; ++position) {
              decode(s, position);
              s.Launch();
              s.Finish();
            }
            s.FinishAll();
            EXPECT_EQ(s.launcher().graphs().runs(), 2);
          },
      .steps =
          [&](Steps& s) {
            decode(s, 11);
            s.Launch();
            // The graph writes block 1 beside its swap-out, behind it.
            decode(s, 12)->swap_outs.push_back({.block = 1, .host_block = 0, .tokens = kBlockTokens});
            s.Launch();
          }};
  ExpectNeeded(scenario, {0, 1}, 4);
}

// A step's data are filled again when the step has ended.
TEST(StepOrder, StepIsFinishedBeforeItsDataAreFilledAgain) {
  const Scenario scenario = {.steps = [](Steps& s) {
    for (SlotId slot = 0; slot < 3; ++slot) {
      s.Plan();
      s.AddPrompt(slot, 12);
      s.Launch();
      if (slot > 0) s.Finish();
    }
  }};
  ExpectNeeded(scenario, {0}, 3);
  const Outcome outcome = RunSteps(scenario, 0);
  EXPECT_NE(outcome.found.find("race with the host: memory was changed before CopyToDevice had read it"),
            std::string::npos)
      << outcome.found;
}

// Without the wait the host has no token.
TEST(StepOrder, ResultsComeWithTheStepsEnd) {
  for (const bool waits : {true, false}) {
    Steps s({});
    s.Plan();
    s.AddPrompt(0, 12);
    emulator::DropWaitAfter(waits ? -1 : 0);
    s.Launch();
    const StepResult result = s.Finish();
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_EQ(result.items.at(0).status == ItemStatus::kOk, waits);
    emulator::TakeFindings();
  }
}

}  // namespace
}  // namespace tactus::test
