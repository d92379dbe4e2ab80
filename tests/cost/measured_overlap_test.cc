// What a profile says of steps in two parts: from measured steps to its remarks and back.
#include "cost/step_tables/measured_overlap.h"

#include <gtest/gtest.h>

#include <vector>

namespace tactus::cost {
namespace {

TEST(OverlapTimes, InterferenceIsTheSharePaidOfTheShorterPart) {
  EXPECT_DOUBLE_EQ((OverlapTimes{.compute = 8, .memory = 4, .together = 9}.Interference()), 0.25);
  EXPECT_DOUBLE_EQ((OverlapTimes{.compute = 4, .memory = 8, .together = 9}.Interference()), 0.25);
  EXPECT_DOUBLE_EQ((OverlapTimes{.compute = 8, .memory = 4, .together = 8}.Interference()), 0);
  EXPECT_DOUBLE_EQ((OverlapTimes{.compute = 8, .memory = 4, .together = 7}.Interference()), 0) << "noise";
  EXPECT_DOUBLE_EQ((OverlapTimes{.compute = 8, .memory = 4, .together = 20}.Interference()), 1);
  EXPECT_DOUBLE_EQ((OverlapTimes{.compute = 8, .memory = 0, .together = 8}.Interference()), 1) << "nothing to overlap";
}

// The inverse of what the cost model computes.
TEST(OverlapTimes, InterferenceIsThatOfTheFitThatMadeTheTimes) {
  const OverlapFit fit{.linear = 0.3};
  EXPECT_NEAR((OverlapTimes{.compute = 5, .memory = 2, .together = fit.Together(5, 2)}.Interference()), 0.3, 1e-12);
}

SplitSample Sample(int64_t tokens, double interference, double whole, double split) {
  SplitSample s{.tokens = tokens};
  s.times = {.compute = 1, .memory = 1, .together = 1 + interference, .whole = whole, .split = split};
  return s;
}

TEST(MeasuredOverlap, HasTheMedianInterferenceAndTheBestLimit) {
  const std::vector<SplitSample> samples = {Sample(512, 0.5, 10, 8), Sample(2, 0.2, 1, 1.6), Sample(64, 0.3, 2, 2.1),
                                            Sample(256, 0.1, 5, 4), Sample(1024, 0.4, 20, 15)};
  const auto overlap = OverlapOf(samples);
  ASSERT_TRUE(overlap.has_value());
  EXPECT_DOUBLE_EQ(overlap->interference, 0.3);
  EXPECT_EQ(overlap->least_split_tokens, 65);
}

// One slow outlier among large steps is no reason to split none; one fast small step is none to split all.
TEST(MeasuredOverlap, LimitIsThatOfTheLeastTimeInAll) {
  const auto overlap = OverlapOf(std::vector<SplitSample>{
      Sample(4, 0, 1, 0.9), Sample(8, 0, 1, 1.5), Sample(16, 0, 1, 0.7), Sample(32, 0, 1, 1.1), Sample(64, 0, 1, 0.6)});
  EXPECT_EQ(overlap->least_split_tokens, 9);
}

TEST(MeasuredOverlap, IsBeyondEveryStepWhereNoneGetsFaster) {
  EXPECT_EQ(OverlapOf(std::vector<SplitSample>{Sample(4, 0, 1, 1.2), Sample(64, 0, 1, 1.1)})->least_split_tokens, 65);
  EXPECT_FALSE(OverlapOf({}).has_value());
}

TEST(MeasuredOverlap, RemarksKeepIt) {
  std::map<std::string, std::string> remarks = {{"model", "m"}};
  EXPECT_FALSE(NotedOverlap(remarks)->has_value());
  NoteOverlap({.interference = 0.3125, .least_split_tokens = 320}, &remarks);
  EXPECT_EQ(remarks.size(), 3u);
  const auto read = NotedOverlap(remarks);
  ASSERT_TRUE(read.ok() && read->has_value());
  EXPECT_EQ(**read, (MeasuredOverlap{.interference = 0.3125, .least_split_tokens = 320}));
  for (const char* wrong : {"1.5", "-0.1", "much", ""}) {
    remarks["overlap interference"] = wrong;
    EXPECT_EQ(NotedOverlap(remarks).status().code(), StatusCode::kDataLoss) << wrong;
  }
}

}  // namespace
}  // namespace tactus::cost
