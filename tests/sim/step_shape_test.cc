// The shape that step-time models get from a plan: every part comes from the right part of the plan.
#include <gtest/gtest.h>

#include "base/step_shape.h"
#include "sim/executor/sim_executor.h"

namespace tactus::sim {
namespace {

// Two prompt chunks around three decodes; all numbers differ, so that none can be confused.
StepPlan MixedPlan() {
  StepPlan plan;
  plan.step = 0;
  plan.items = {
      {1, 17, 30, 0, false}, {2, 99, 1, 1, true}, {3, 49, 1, 1, true}, {4, 0, 70, 70, true}, {5, 19, 1, 1, true}};
  plan.prompt_items = {0, 3};
  plan.num_tokens = 103;
  plan.num_decodes = 3;
  plan.decode_context_tokens = 100 + 50 + 20;
  plan.prefixes = {{48, 2}};
  plan.logit_rows = 73;
  plan.padded_tokens = 25;
  plan.swap_outs.resize(2);
  plan.swap_ins.resize(5);
  return plan;
}

TEST(ShapeOfAPlan, HasEveryPartOfThePlan) {
  std::vector<ChunkShape> chunks = {{1, 1}, {2, 2}, {3, 3}};  // from an earlier step
  const StepPlan plan = MixedPlan();
  const StepShape shape = ShapeOf(plan, &chunks);
  ASSERT_EQ(shape.chunks.size(), 2u);
  EXPECT_EQ(shape.chunks[0].context_tokens, 17);
  EXPECT_EQ(shape.chunks[0].tokens, 30);
  EXPECT_EQ(shape.chunks[1].context_tokens, 0);
  EXPECT_EQ(shape.chunks[1].tokens, 70);
  EXPECT_EQ(shape.decodes, 3);
  EXPECT_EQ(shape.decode_context_tokens, 170);
  ASSERT_EQ(shape.prefixes.size(), 1u);
  EXPECT_EQ(shape.prefixes[0].tokens, 48);
  EXPECT_EQ(shape.prefixes[0].decodes, 2);
  EXPECT_EQ(shape.logit_rows, 73);
  EXPECT_EQ(shape.padded_tokens, 25) << "padding is computed and must cost what it costs";
  EXPECT_EQ(shape.swap_blocks, 2 + 5);
}

// One prime per part of the shape.
struct PrimesModel final : StepTimeModel {
  DurationNs StageTimeNs(const StepShape& s, int32_t) const override {
    return 1'000'000 * s.prefill_tokens() + 2 * s.decodes + 3 * s.decode_context_tokens + 5 * s.logit_rows +
           7 * s.swap_blocks + 11 * s.padded_tokens;
  }
  DurationNs StepTimeNs(const StepShape& s) const override { return StageTimeNs(s, 0); }
  DurationNs SendTimeNs(const StepShape&) const override { return 0; }
  int32_t stages() const override { return 1; }
};

TEST(ShapeOfAPlan, EveryPartIncludingPaddingCostsTime) {
  PrimesModel model;
  ManualClock clock;
  SimExecutor executor({.step_time = &model, .clock = &clock, .max_slots = 8});
  StepPlan plan = MixedPlan();
  const TimeNs start = clock.NowNs();
  executor.Submit(plan);
  EXPECT_EQ(executor.NextReadyNs() - start, 100'000'000 + 2 * 3 + 3 * 170 + 5 * 73 + 7 * 7 + 11 * 25);
  const SimExecutorFigures& f = executor.figures();
  EXPECT_EQ(f.steps, 1);
  EXPECT_EQ(f.items, 5);
  EXPECT_EQ(f.most_tokens, 103);
  EXPECT_EQ(f.most_decodes, 3);
  EXPECT_EQ(f.most_decode_context_tokens, 170);
  EXPECT_EQ(f.most_logit_rows, 73);
  EXPECT_EQ(f.most_chunk.tokens, 70);
  EXPECT_EQ(f.most_chunk.context_tokens, 17);
  EXPECT_EQ(f.step_ns, executor.NextReadyNs() - start);
  EXPECT_EQ(f.stages[0].busy_ns, f.step_ns);
  // A smaller step does not lower the maxima.
  clock.AdvanceTo(executor.NextReadyNs());
  StepResult result;
  ASSERT_TRUE(executor.Poll(&result));
  StepPlan small;
  small.step = 1;
  small.items = {{2, 100, 1, 1, true}};
  small.num_tokens = small.num_decodes = 1;
  small.decode_context_tokens = 101;
  small.logit_rows = 1;
  executor.Submit(small);
  EXPECT_EQ(f.steps, 2);
  EXPECT_EQ(f.items, 6);
  EXPECT_EQ(f.most_tokens, 103);
  EXPECT_EQ(f.most_decodes, 3);
  EXPECT_EQ(f.most_decode_context_tokens, 170);
  EXPECT_EQ(f.most_logit_rows, 73);
  EXPECT_EQ(f.most_chunk.tokens, 70);
}

}  // namespace
}  // namespace tactus::sim
