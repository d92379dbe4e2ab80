// What a step-time model says of stages when it says only how long a step takes.
#include "base/step_time_model.h"

#include <gtest/gtest.h>

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
}

}  // namespace
}  // namespace tactus
