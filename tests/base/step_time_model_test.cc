// Defaults for stages of a step-time model that only implements the time of a step.
#include "base/step_time_model.h"

#include <gtest/gtest.h>

#include "base/step_rates.h"

namespace tactus {
namespace {

struct SevenPerToken final : StepTimeModel {
  DurationNs StepTimeNs(const StepShape& s) const override { return 7 * s.tokens(); }
};

TEST(StepTimeModel, OneStageTakesTheWholeStep) {
  const SevenPerToken model;
  const ChunkShape chunks[] = {{100, 10}, {0, 20}};
  StepShape shape;
  shape.chunks = chunks;
  shape.decodes = 3;
  EXPECT_EQ(shape.prefill_tokens(), 30);
  EXPECT_EQ(shape.tokens(), 33);
  EXPECT_EQ(model.stages(), 1);
  EXPECT_EQ(model.StageTimeNs(shape, 0), 7 * 33);
  EXPECT_EQ(model.StageTimeNs(shape, 1), 0);
  EXPECT_EQ(model.SendTimeNs(shape), 0);
  EXPECT_EQ(model.tile_tokens(), 1);
  EXPECT_EQ(model.Extrapolation(shape), "") << "it is not measured";
}

struct Linear final : StepTimeModel {
  DurationNs StepTimeNs(const StepShape& s) const override {
    DurationNs ns = 51'200 + 1000 * s.prefill_tokens() + 50 * s.decode_context_tokens;
    for (const ChunkShape& c : s.chunks) ns += int64_t{c.tokens} * c.context_tokens;
    return ns;
  }
};

// 51.2 us are 100 ns for each of 512 tokens.
TEST(StepRates, AreThoseOfAFullStepAndOfOneMoreTokenOfContext) {
  const StepRates rates = RatesOf(Linear(), 512);
  EXPECT_DOUBLE_EQ(rates.prompt_token_s, 1.1e-6);
  EXPECT_DOUBLE_EQ(rates.kv_token_s, 50e-9);
  EXPECT_GT(RatesOf(Linear(), 1).prompt_token_s, 1e-6) << "a step smaller than one chunk";
  EXPECT_EQ(RatesOf(SevenPerToken(), 512).kv_token_s, 0) << "context costs nothing there";
}

}  // namespace
}  // namespace tactus
