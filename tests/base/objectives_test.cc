#include "base/objectives.h"

#include <gtest/gtest.h>

namespace tactus {
namespace {

struct Steps final : StepTimeModel {
  DurationNs chunk_ns = 3 * kMillisecond, decode_ns = 2 * kMillisecond;
  DurationNs StepTimeNs(const StepShape& shape) const override {
    EXPECT_EQ(shape.tokens(), 1);
    return shape.decodes > 0 ? decode_ns : chunk_ns;
  }
};

TEST(Objectives, TheShortestStepHasOneTokenOfEitherKind) {
  Steps steps;
  EXPECT_EQ(ShortestStepNs(steps), 2 * kMillisecond);
  steps.chunk_ns = kMillisecond;
  EXPECT_EQ(ShortestStepNs(steps), kMillisecond);
}

TEST(Objectives, AnObjectiveBelowTheFloorIsRefusedByName) {
  EXPECT_TRUE(CheckObjectives({}, kSecond).ok()) << "no objective is stated";
  EXPECT_TRUE(CheckObjectives({5, 5, 5}, 5).ok()) << "equal to the floor is possible";
  EXPECT_TRUE(CheckObjectives({1, 1, 1}, 0).ok()) << "no floor is known";
  EXPECT_EQ(CheckObjectives({4, 5, 5}, 5).param(), "slo.ttft_ms");
  EXPECT_EQ(CheckObjectives({5, 4, 5}, 5).param(), "slo.tbt_ms");
  EXPECT_EQ(CheckObjectives({0, 0, 4}, 5).param(), "slo.jct_ms");
  EXPECT_EQ(CheckObjectives({6, 0, 5}, 5).param(), "slo.ttft_ms") << "the first token after the last";
  EXPECT_TRUE(CheckObjectives({5, 9, 5}, 5).ok()) << "an answer of one token has no gap";
  EXPECT_TRUE(IsBelow({0, 4, 0}, 5));
  EXPECT_FALSE(IsBelow({0, 5, 0}, 5));
}

}  // namespace
}  // namespace tactus
