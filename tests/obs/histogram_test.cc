#include "obs/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace tactus {
namespace {

TEST(Histogram, QuantilesAreWithinHalfAPercentOfExactOnes) {
  Rng rng(5);
  Histogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 50000; ++i) {
    const auto v = static_cast<int64_t>(std::exp(rng.Normal() * 4.0 + 15.0)) + 1;
    values.push_back(v);
    histogram.Add(v);
  }
  std::sort(values.begin(), values.end());
  for (double q : {0.001, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.9999, 1.0}) {
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size()))) - 1;
    const auto exact = static_cast<double>(values[rank]);
    EXPECT_NEAR(histogram.Quantile(q) / exact, 1.0, 0.005) << q;
  }
  EXPECT_EQ(histogram.max(), values.back());
}

TEST(Histogram, SmallValuesAreExactAndEqualOnesCountAtOnce) {
  Histogram a, b;
  for (int i = 0; i < 7; ++i) a.Add(200);
  b.Add(200, 7);
  EXPECT_EQ(a.Quantile(0.5), 200);
  EXPECT_EQ(b.Quantile(0.5), 200);
  EXPECT_EQ(a.sum(), b.sum());
  a.Add(3);
  EXPECT_EQ(a.Quantile(0.01), 3);
  a.Merge(b);
  EXPECT_EQ(a.count(), 15);
}

TEST(Histogram, EmptyIsUnknownAndExtremesAreClamped) {
  Histogram h;
  EXPECT_FALSE(h.Summarize(1).known);
  h.Add(-5);
  h.Add(INT64_MAX);
  EXPECT_EQ(h.Quantile(0.5), 1);
  EXPECT_GT(h.Quantile(1.0), 4e18);
}

TEST(Histogram, EveryValueHasABucketWithItsNeighbourhood) {
  Histogram one;
  for (int64_t v = 1; v > 0 && v < (int64_t{1} << 61); v = v * 3 / 2 + 1) {
    Histogram h;
    h.Add(v);
    EXPECT_NEAR(h.Quantile(0.5) / static_cast<double>(v), 1.0, 0.004) << v;
  }
}

}  // namespace
}  // namespace tactus
