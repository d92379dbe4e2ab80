#include "results/obs/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace tactus::results {
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

TEST(Histogram, AnEmptyHistogramIsZeroAndExtremesAreClamped) {
  Histogram h;
  EXPECT_FALSE(h.Summarize(1).known);
  h.Add(-5);
  h.Add(INT64_MAX);
  EXPECT_EQ(h.Quantile(0.5), 1);
  EXPECT_GT(h.Quantile(1.0), 4e18);
}

TEST(Histogram, SummariesMatchValuesComputedByHand) {
  Histogram h;
  h.Add(30);
  h.Add(20, 8);
  h.Add(10);
  const Summary s = h.Summarize(0.5);
  EXPECT_TRUE(s.known);
  EXPECT_DOUBLE_EQ(s.mean, 10);  // (30 + 160 + 10) / 10, halved
  EXPECT_DOUBLE_EQ(s.p50, 10);
  EXPECT_DOUBLE_EQ(s.p90, 10);  // nine of ten are 20 or less
  EXPECT_DOUBLE_EQ(s.p95, 15);
  EXPECT_DOUBLE_EQ(s.p99, 15);
  EXPECT_DOUBLE_EQ(s.max, 15);
  EXPECT_EQ(h.count(), 10);
  EXPECT_DOUBLE_EQ(h.sum(), 200);
  Histogram two;
  two.Add(1);
  two.Add(2);
  EXPECT_EQ(two.Quantile(0.5), 1);
  EXPECT_EQ(two.Quantile(0.501), 2);
  EXPECT_EQ(two.Quantile(1e-9), 1);
  EXPECT_EQ(Histogram().Quantile(0.5), 0);
}

TEST(Histogram, BucketsAreWholeUpTo255AndThenReportTheirMiddle) {
  const auto of = [](std::initializer_list<int64_t> values, double q) {
    Histogram h;
    for (const int64_t v : values) h.Add(v);
    return h.Quantile(q);
  };
  EXPECT_EQ(of({255, 1000}, 0.5), 255);
  EXPECT_EQ(of({256, 1000}, 0.5), 256.5);  // 256 and 257 share a bucket
  EXPECT_EQ(of({257, 1000}, 0.5), 256.5);
  EXPECT_EQ(of({258, 1000}, 0.5), 258.5);
  EXPECT_EQ(of({512, 1000}, 0.5), 513.5);  // 512 to 515
  EXPECT_EQ(of({256}, 0.5), 256);          // never above the largest
  EXPECT_EQ(of({0, 5}, 0.5), 1);           // below 1 counts as 1
}

TEST(Histogram, MergingEqualsAddingAllValues) {
  Histogram a, b, all;
  for (int64_t v : {5, 300, 70000}) a.Add(v), all.Add(v);
  for (int64_t v : {1, 900000, 42}) b.Add(v, 3), all.Add(v, 3);
  a.Merge(b);
  EXPECT_EQ(a.count(), all.count());
  EXPECT_DOUBLE_EQ(a.sum(), all.sum());
  EXPECT_EQ(a.max(), 900000);
  for (const double q : {0.1, 0.4, 0.6, 0.9, 1.0}) EXPECT_EQ(a.Quantile(q), all.Quantile(q)) << q;
  b.Merge(Histogram());
  EXPECT_EQ(b.max(), 900000);
  EXPECT_EQ(b.count(), 9);
}

TEST(Histogram, EveryValueIsInABucketWithItsNeighbours) {
  Histogram one;
  for (int64_t v = 1; v > 0 && v < (int64_t{1} << 61); v = v * 3 / 2 + 1) {
    Histogram h;
    h.Add(v);
    EXPECT_NEAR(h.Quantile(0.5) / static_cast<double>(v), 1.0, 0.004) << v;
  }
}

// Up to 255 every value has its own bucket; 256 and 257 are the first two to share one; no quantile exceeds the largest
// value.
TEST(Histogram, BucketsWidenAt256) {
  for (const int64_t v : {1, 127, 128, 129, 254, 255}) {
    Histogram h;
    h.Add(v);
    h.Add(1000);
    EXPECT_EQ(h.Quantile(0.5), static_cast<double>(v));
  }
  Histogram shared;
  shared.Add(256);
  EXPECT_EQ(shared.Quantile(0.5), 256) << "never more than the largest value seen";
  shared.Add(257);
  EXPECT_EQ(shared.Quantile(0.5), 256.5) << "the middle of 256 and 257";
  shared.Add(258, 2);
  EXPECT_EQ(shared.Quantile(0.5), 256.5);
  EXPECT_EQ(shared.Quantile(0.51), 258);
}

TEST(Histogram, QuantilesTakeTheRankThatIsReached) {
  Histogram h;
  for (int64_t v = 1; v <= 10; ++v) h.Add(v * 10);
  EXPECT_EQ(h.Quantile(0), 10);
  EXPECT_EQ(h.Quantile(0.1), 10);
  EXPECT_EQ(h.Quantile(0.11), 20);
  EXPECT_EQ(h.Quantile(0.5), 50);
  EXPECT_EQ(h.Quantile(0.9), 90);
  EXPECT_EQ(h.Quantile(0.91), 100);
  EXPECT_EQ(h.Quantile(1), 100);
  EXPECT_EQ(Histogram().Quantile(0.5), 0);
}

TEST(Histogram, SummariesAndMergesHaveEveryFigure) {
  Histogram a, b;
  for (int64_t v = 1; v <= 100; ++v) (v <= 60 ? a : b).Add(v);
  EXPECT_EQ(a.max(), 60);
  a.Merge(b);
  EXPECT_EQ(a.count(), 100);
  EXPECT_EQ(a.sum(), 5050);
  EXPECT_EQ(a.max(), 100);
  b.Merge(Histogram());
  EXPECT_EQ(b.max(), 100);
  EXPECT_EQ(b.count(), 40);
  const Summary s = a.Summarize(0.5);
  EXPECT_TRUE(s.known);
  EXPECT_DOUBLE_EQ(s.mean, 25.25);
  EXPECT_DOUBLE_EQ(s.p50, 25);
  EXPECT_DOUBLE_EQ(s.p90, 45);
  EXPECT_DOUBLE_EQ(s.p95, 47.5);
  EXPECT_DOUBLE_EQ(s.p99, 49.5);
  EXPECT_DOUBLE_EQ(s.max, 50);
  Histogram low;
  low.Add(-5, 3);
  EXPECT_EQ(low.count(), 3);
  EXPECT_EQ(low.sum(), 3) << "values below one count as one";
  EXPECT_EQ(low.max(), 1);
}

}  // namespace
}  // namespace tactus::results
