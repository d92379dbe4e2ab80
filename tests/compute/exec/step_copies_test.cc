// The order of copies within one step (base/step.h): swap-outs, copies, swap-ins, items. Every pair of them accesses
// the same block here, so another order changes the logits.
#include <gtest/gtest.h>

#include "compute/exec/tiny_model.h"
#include "support/fake_executor.h"

namespace tactus::test {
namespace {

constexpr int32_t kLength = 12;  // positions of a sequence in its one block of 16

std::vector<TokenId> PromptOf(int32_t seed) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < kLength + 1; ++i) tokens.push_back((i * i * 5 + i * 3 + seed * 17) % 120);
  return tokens;
}

using Rows = std::map<int32_t, std::vector<float>>;  // by slot

// Runs items of one block each: slot s computes [first, first + count) of the prompt of `seed`, in `block`.
class Bench {
 public:
  Bench(const TinyModel& model, const compute::CpuExecutorOptions& options) {
    auto runner = compute::StepRunner::Create(model.config, model.weights, options);
    TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
    runner_ = std::move(*runner);
    runner_->set_logits_observer([this](int32_t item, int32_t, std::span<const float> row) {
      rows_[plan_.items[static_cast<size_t>(item)].slot].assign(row.begin(), row.end());
    });
  }
  struct Run {
    SlotId slot;
    int32_t seed;
    BlockId block;
    int32_t first, count;
  };
  Rows Step(const std::vector<Run>& runs, StepPlan plan = {}) {
    plan_ = std::move(plan);
    plan_.step = step_++;
    for (const Run& run : runs) {
      const std::vector<TokenId> prompt = PromptOf(run.seed);
      plan_.starts.push_back({.slot = run.slot, .sampling = SamplingOf(MakeRequest(prompt, Greedy()), {})});
      plan_.table_updates.push_back({run.slot, 0, 1, static_cast<int32_t>(plan_.table_blocks.size())});
      plan_.table_blocks.push_back(run.block);
      StepItem item;
      item.slot = run.slot;
      item.first_position = run.first;
      item.count = run.count;
      item.logit_rows = 1;
      item.token_offset = static_cast<int32_t>(plan_.tokens.size());
      plan_.items.push_back(item);
      plan_.tokens.insert(plan_.tokens.end(), prompt.begin() + run.first, prompt.begin() + run.first + run.count);
      plan_.num_tokens += run.count;
    }
    rows_.clear();
    StepResult result;
    runner_->Run(plan_, &result);
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    return rows_;
  }

 private:
  std::unique_ptr<compute::StepRunner> runner_;
  StepPlan plan_;
  Rows rows_;
  StepId step_ = 0;
};

// A (block 3) is swapped out; a fork of B (block 5) is copied over it; D, swapped out earlier, returns over B's own
// block.
TEST(StepCopies, OneStepSwapsOutThenCopiesThenSwapsIn) {
  const TinyModel model = LoadTiny("llama-gqa");
  compute::CpuExecutorOptions options = model.Options();
  options.num_blocks = 8;
  options.swap_blocks = 2;
  Bench bench(model, options);
  constexpr int32_t kA = 1, kB = 2, kD = 4;
  Rows want;  // logits of the position after the twelve, by seed, each from an undisturbed block
  for (const int32_t seed : {kA, kB, kD}) {
    bench.Step({{0, seed, 0, 0, kLength}});
    want[seed] = bench.Step({{0, seed, 0, kLength, 1}})[0];
  }
  ASSERT_NE(want[kA], want[kB]);
  ASSERT_NE(want[kB], want[kD]);

  bench.Step({{3, kD, 6, 0, kLength}});
  StepPlan save;
  save.swap_outs = {{6, 1, kLength}};
  bench.Step({{0, kA, 3, 0, kLength}, {1, kB, 5, 0, kLength}}, save);

  StepPlan all;
  all.swap_outs = {{3, 0, kLength}};
  all.copies = {{5, 3, kLength}};
  all.swap_ins = {{5, 1, kLength}};
  Rows got = bench.Step({{2, kB, 3, kLength, 1}, {3, kD, 5, kLength, 1}}, all);
  EXPECT_EQ(got[2], want[kB])
      << "the fork did not get its parent's block: the copy ran before the swap-out or after the swap-in";
  EXPECT_EQ(got[3], want[kD]) << "the swapped-in block was overwritten by a copy";

  StepPlan back;
  back.swap_ins = {{7, 0, kLength}};
  got = bench.Step({{0, kA, 7, kLength, 1}}, back);
  EXPECT_EQ(got[0], want[kA])
      << "the saved content is not the block's content before this step: the copy ran before the swap-out";
}

// The fake memory of the engine's tests has the same order.
TEST(StepCopies, TheFakeExecutorCopiesInTheSameOrder) {
  FakeExecutorConfig config;
  config.num_blocks = 8;
  config.block_size = 16;
  config.max_slots = 4;
  config.swap_blocks = 2;
  FakeExecutor executor(config);
  StepId step = 0;
  const auto run = [&](SlotId slot, int32_t seed, BlockId block, int32_t first, StepPlan plan) {
    plan.step = step++;
    const std::vector<TokenId> prompt = PromptOf(seed);
    plan.starts.push_back({.slot = slot, .sampling = SamplingOf(MakeRequest(prompt, Greedy()), {})});
    plan.table_updates.push_back({slot, 0, 1, 0});
    plan.table_blocks = {block};
    StepItem item;
    item.slot = slot;
    item.first_position = first;
    item.count = first == 0 ? kLength : 1;
    item.logit_rows = 1;
    item.sample = true;
    plan.items.push_back(item);
    plan.tokens.assign(prompt.begin() + first, prompt.begin() + first + item.count);
    plan.num_tokens = item.count;
    executor.Submit(plan);
    StepResult result;
    EXPECT_TRUE(executor.Poll(&result));
    EXPECT_EQ(executor.violation(), "");
    return result.tokens.at(0);
  };
  const auto expected = [&](int32_t seed) { return FakeExecutor::Expected(config, PromptOf(seed), 0); };
  run(0, 1, 3, 0, {});
  run(1, 2, 5, 0, {});
  StepPlan both;
  both.swap_outs = {{3, 0, kLength}};
  both.copies = {{5, 3, kLength}};
  EXPECT_EQ(run(2, 2, 3, kLength, both), expected(2));
  StepPlan back;
  back.swap_ins = {{5, 0, kLength}};
  EXPECT_EQ(run(0, 1, 5, kLength, back), expected(1)) << "the saved content is not the block's content before the step";
}

}  // namespace
}  // namespace tactus::test
