// The search for the largest value: result, number of calls, stopping.
#include "sim/find_largest.h"

#include <gtest/gtest.h>

#include <vector>

namespace tactus::sim {
namespace {

struct Asked {
  Largest found;
  std::vector<double> values;
};

Asked Search(const LargestRange& range, double limit) {
  Asked out;
  auto found = FindLargest(range, [&](double value) -> Result<bool> {
    out.values.push_back(value);
    return value <= limit;
  });
  EXPECT_TRUE(found.ok());
  if (found.ok()) out.found = *found;
  return out;
}

TEST(FindLargest, BracketsTheLimitWithinTheTolerance) {
  for (const double limit : {0.013, 0.5, 1.0, 3.3, 77.0, 9000.0}) {
    const Asked a = Search({.low = 0.01, .high = 10'000, .start = 1, .tolerance = 0.02}, limit);
    ASSERT_TRUE(a.found.held && a.found.broke) << limit;
    EXPECT_LE(*a.found.held, limit);
    EXPECT_GT(*a.found.broke, limit);
    EXPECT_LE(*a.found.broke, *a.found.held * 1.02);
    EXPECT_LE(a.values.size(), 22u) << limit;
  }
}

TEST(FindLargest, WholeNumbersEndAdjacent) {
  for (const double limit : {1.0, 2.0, 7.0, 8.0, 9.0, 100.0, 65'535.0}) {
    const Asked a = Search({.low = 1, .high = 65'536, .start = 8, .tolerance = 1e-9, .whole = true}, limit);
    ASSERT_TRUE(a.found.held && a.found.broke) << limit;
    EXPECT_EQ(*a.found.held, limit);
    EXPECT_EQ(*a.found.broke, limit + 1);
    for (const double v : a.values) EXPECT_EQ(v, static_cast<double>(static_cast<int64_t>(v)));
  }
}

TEST(FindLargest, ReportsALimitOutsideTheRange) {
  const Asked none = Search({.low = 0.5, .high = 100}, 0.1);
  EXPECT_FALSE(none.found.held);
  EXPECT_EQ(none.found.broke, 0.5);
  const Asked all = Search({.low = 0.5, .high = 100}, 1e9);
  EXPECT_EQ(all.found.held, 100);
  EXPECT_FALSE(all.found.broke);
  const Asked one = Search({.low = 3, .high = 3}, 5);
  EXPECT_EQ(one.values, std::vector<double>{3});
}

TEST(FindLargest, AStopKeepsTheResultSoFarAndAnErrorIsReturned) {
  int asked = 0;
  const auto stopped = FindLargest({.low = 0.01, .high = 100}, [&](double value) -> Result<bool> {
    if (++asked > 4) return Status(StatusCode::kCancelled, "stop");
    return value <= 3;
  });
  ASSERT_TRUE(stopped.ok());
  EXPECT_FALSE(stopped->finished);
  EXPECT_EQ(stopped->broke, 4);
  const auto failed =
      FindLargest({.low = 0.01, .high = 100}, [](double) -> Result<bool> { return InvalidArgument("no such model"); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().message(), "no such model");
}

}  // namespace
}  // namespace tactus::sim
