// Values over time in bounded memory: a bin's least, largest and mean include every value.
#include "results/report/time_bins.h"

#include <gtest/gtest.h>

namespace tactus::results {
namespace {

TEST(TimeBinsTest, KeepsLeastLargestAndMeanOfABin) {
  TimeBins bins;
  bins.Add(100, 4, 1);
  bins.Add(200, 8, 3);
  ASSERT_EQ(bins.bins().size(), 1u);
  EXPECT_EQ(bins.bins()[0].least, 4);
  EXPECT_EQ(bins.bins()[0].largest, 8);
  EXPECT_EQ(bins.bins()[0].mean(), 7);
}

TEST(TimeBinsTest, AMillionStepsStayBoundedAndASpikeIsKept) {
  TimeBins bins;
  constexpr int64_t kSteps = 1'000'000;
  for (int64_t i = 0; i < kSteps; ++i) bins.Add(i * 30 * kMillisecond, i == 777'777 ? 500 : 20);
  EXPECT_LE(bins.bins().size(), TimeBins::kMostBins);
  EXPECT_GT(bins.bins().size(), TimeBins::kMostBins / 2);
  double weight = 0;
  for (const TimeBins::Bin& bin : bins.bins()) weight += bin.weight;
  EXPECT_EQ(weight, kSteps);
  const auto at = static_cast<size_t>(777'777 * 30 * kMillisecond / bins.width_ns());
  EXPECT_EQ(bins.bins()[at].largest, 500);
  EXPECT_EQ(bins.bins()[at].least, 20);
  EXPECT_EQ(bins.largest(), 500);
}

TEST(TimeBinsTest, ALateValueIsAddedAtItsTime) {
  TimeBins bins;
  bins.Add(1000 * kSecond, 1);
  bins.Add(0, 9);
  EXPECT_EQ(bins.bins().front().largest, 9);
  EXPECT_EQ(bins.bins().back().largest, 1);
}

TEST(TimeBinsTest, TheLargestTimeHasABin) {
  TimeBins bins;
  bins.Add(0, 3);
  bins.Add(kNever - 1, 5);
  EXPECT_LE(bins.bins().size(), TimeBins::kMostBins);
  EXPECT_EQ(bins.bins().front().largest, 3);
  EXPECT_EQ(bins.bins().back().largest, 5);
}

}  // namespace
}  // namespace tactus::results
