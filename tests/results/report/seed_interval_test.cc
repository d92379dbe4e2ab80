// Means, ratios and their intervals, compared with values computed by hand and from tables of Student's t.
#include "results/report/seed_interval.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tactus::results {
namespace {

TEST(SeedInterval, MeanHasAStudentsTInterval) {
  const std::vector<double> values = {1, 2, 3};
  const SeedInterval m = MeanOver(values);
  EXPECT_DOUBLE_EQ(m.mean, 2);
  ASSERT_TRUE(m.interval);
  const double half = 4.302653 * 1 / std::sqrt(3.0);  // t of 2 degrees of freedom, standard deviation 1
  EXPECT_NEAR(m.interval->low, 2 - half, 1e-6);
  EXPECT_NEAR(m.interval->high, 2 + half, 1e-6);
}

TEST(SeedInterval, OneValueHasNoInterval) {
  const std::vector<double> one = {7};
  EXPECT_FALSE(MeanOver(one).interval);
  EXPECT_TRUE(IntervalJson(MeanOver(one))["low"].is_null());
}

TEST(SeedInterval, PairedRatiosCancelEffectsOfTheSeed) {
  const std::vector<double> b = {1, 10, 100}, a = {2, 20, 200};
  const auto paired = RatioOver(a, b, true);
  ASSERT_TRUE(paired && paired->interval);
  EXPECT_NEAR(paired->mean, 2, 1e-12);
  EXPECT_NEAR(paired->interval->low, 2, 1e-9);
  EXPECT_NEAR(paired->interval->high, 2, 1e-9);
  const auto apart = RatioOver(a, b, false);
  ASSERT_TRUE(apart && apart->interval);
  EXPECT_NEAR(apart->mean, 2, 1e-12);
  EXPECT_LT(apart->interval->low, 1);  // seeds differ more than the two configurations
  EXPECT_GT(apart->interval->high, 4);
}

TEST(SeedInterval, UnpairedRatiosUseWelchsInterval) {
  // Logarithms 0, 1, 2 and 3, 4, 5: the variance of each mean is 1/3, 4 degrees of freedom, t 2.776445.
  const std::vector<double> b = {1, std::exp(1.0), std::exp(2.0)}, a = {std::exp(3.0), std::exp(4.0), std::exp(5.0)};
  const auto ratio = RatioOver(a, b, false);
  ASSERT_TRUE(ratio && ratio->interval);
  EXPECT_NEAR(std::log(ratio->mean), 3, 1e-9);
  EXPECT_NEAR(std::log(ratio->interval->high), 3 + 2.776445 * std::sqrt(2.0 / 3), 1e-5);
}

TEST(SeedInterval, ValuesNotAboveZeroHaveNoRatio) {
  const std::vector<double> zero = {0, 1}, some = {1, 2};
  EXPECT_FALSE(RatioOver(some, zero, true));
  EXPECT_FALSE(RatioOver(zero, some, true));
  EXPECT_FALSE(RatioOver({}, some, false));
}

}  // namespace
}  // namespace tactus::results
