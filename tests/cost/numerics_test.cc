// Numerical parts of the cost model, computed by hand: the grid of tabulated operators, the table of counts, and the
// non-negative fit.
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "cost/hybrid_model.h"
#include "cost/log_grid.h"
#include "cost/step_tables/nonnegative_fit.h"

namespace tactus::cost {
namespace {

// A plane is reproduced exactly, also between the nodes and beyond the last.
TEST(LogGrid, PlaneIsReproducedExactly) {
  LogGrid grid(100, 1000);
  EXPECT_EQ(grid.Fill([](double r, double c) { return 7 + 3 * r + 5 * c; }), 0);
  for (const double r : {0.0, 1.0, 17.0, 100.0, 333.0}) {
    for (const double c : {0.0, 2.5, 64.0, 1000.0, 54321.0})
      EXPECT_NEAR(grid.At(r, c), 7 + 3 * r + 5 * c, 1e-6) << r << " " << c;
  }
}

// A value below an earlier one on either axis is raised to it, and Fill returns by how much.
TEST(LogGrid, FallingValuesAreRaised) {
  LogGrid rows(100, 100);
  EXPECT_NEAR(rows.Fill([](double r, double) { return r == 0 ? 4 : 2; }), 1.0, 1e-12) << "2 was raised to 4: doubled";
  EXPECT_EQ(rows.At(50, 3), 4);
  LogGrid columns(100, 100);
  EXPECT_NEAR(columns.Fill([](double, double c) { return c == 0 ? 3 : 2; }), 0.5, 1e-12);
  EXPECT_EQ(columns.At(3, 50), 3);
}

// Eight nodes per octave of value + 1, up to at least the largest value.
TEST(LogGrid, AxisHasEightNodesPerOctave) {
  const LogAxis axis(15);
  EXPECT_EQ(axis.NodeValue(0), 0);
  EXPECT_EQ(axis.NodeValue(4), 0.5);
  EXPECT_EQ(axis.NodeValue(8), 1);
  EXPECT_EQ(axis.NodeValue(12), 2);
  EXPECT_EQ(axis.NodeValue(32), 15);
  EXPECT_EQ(axis.nodes(), 33);
  EXPECT_EQ(axis.Locate(15).cell, 31);
  EXPECT_EQ(axis.Locate(15).fraction, 1);
  EXPECT_EQ(LogAxis(15.5).nodes(), 34);
}

// One value per count; beyond the last the slope of the second half; raised where values would fall.
TEST(CountTable, ExtrapolatesWithTheSlopeOfItsSecondHalf) {
  CountTable table;
  table.Fill(8,
             [](int64_t i) { return i <= 4 ? 100.0 * static_cast<double>(i) : 400 + 10 * static_cast<double>(i - 4); });
  EXPECT_EQ(table.last(), 8);
  EXPECT_EQ(table.At(3), 300);
  EXPECT_EQ(table.At(8), 440);
  EXPECT_EQ(table.At(10), 460);
  table.Fill(4, [](int64_t i) { return i == 1 ? 50.0 : static_cast<double>(i); });
  EXPECT_EQ(table.At(3), 50);
}

std::vector<double> Fit(const std::vector<double>& rows, const std::vector<double>& targets,
                        std::vector<double> weights = {}) {
  if (weights.empty()) weights.assign(targets.size(), 1);
  return NonNegativeLeastSquares(rows, targets, weights, rows.size() / targets.size());
}

TEST(NonNegativeFit, SmallCasesMatchHandComputation) {
  std::vector<double> x = Fit({1, 0, 0, 1, 1, 1}, {2, 3, 5});
  EXPECT_NEAR(x[0], 2, 1e-8);
  EXPECT_NEAR(x[1], 3, 1e-8);
  // 3, 2, 1 falls in the second column: its coefficient is bound at 0, and the constant is the mean.
  x = Fit({1, 1, 1, 2, 1, 3}, {3, 2, 1});
  EXPECT_NEAR(x[0], 2, 1e-8);
  EXPECT_EQ(x[1], 0);
  // Weights: (3 * 2 + 1 * 4) / 4.
  EXPECT_NEAR(Fit({1, 1}, {2, 4}, {3, 1})[0], 2.5, 1e-8);
  // Units do not matter, and a column of zeros gets 0.
  x = Fit({1e6, 0, 2e6, 0}, {3, 6});
  EXPECT_NEAR(x[0], 3e-6, 1e-14);
  EXPECT_EQ(x[1], 0);
}

// The optimality conditions, on random problems whose unbounded solutions have negative parts: nothing is negative, the
// error's gradient is 0 in free coefficients and not negative in bound ones.
TEST(NonNegativeFit, RandomProblemsMeetTheConditionsOfTheOptimum) {
  int bound = 0, free = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const size_t n = 5, m = 12;
    std::vector<double> rows(n * m), targets(m), weights(m);
    for (double& v : rows) v = rng.Normal();
    for (double& v : targets) v = rng.Normal();
    for (double& v : weights) v = 0.1 + rng.Uniform();
    const std::vector<double> x = NonNegativeLeastSquares(rows, targets, weights, n);
    for (size_t a = 0; a < n; ++a) {
      double falls = 0;
      for (size_t i = 0; i < m; ++i) {
        double left = targets[i];
        for (size_t b = 0; b < n; ++b) left -= rows[i * n + b] * x[b];
        falls += weights[i] * rows[i * n + a] * left;
      }
      EXPECT_GE(x[a], 0) << "seed " << seed;
      if (x[a] > 0) {
        EXPECT_NEAR(falls, 0, 1e-6) << "seed " << seed << ": x[" << a << "] = " << x[a] << " is not at the least error";
      } else {
        EXPECT_LE(falls, 1e-6) << "seed " << seed << ": x[" << a << "] is bound at 0 without need";
      }
      (x[a] > 0 ? free : bound) += 1;
    }
  }
  EXPECT_GT(bound, 200);
  EXPECT_GT(free, 200);
}

}  // namespace
}  // namespace tactus::cost
