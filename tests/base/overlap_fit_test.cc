#include "base/overlap_fit.h"

#include <gtest/gtest.h>

namespace tactus {
namespace {

TEST(OverlapFit, IsTheLongerPartAndAShareOfTheShorter) {
  const OverlapFit perfect, fitted{.linear = 0.1, .quadratic = 0.2};
  EXPECT_DOUBLE_EQ(perfect.Together(2, 3), 3);
  EXPECT_DOUBLE_EQ(kNoOverlap.Together(2, 3), 5);
  EXPECT_DOUBLE_EQ(fitted.Together(4, 2), 4 * (1 + 0.05 + 0.05));
  EXPECT_DOUBLE_EQ(fitted.Together(2, 4), fitted.Together(4, 2));
  EXPECT_DOUBLE_EQ(fitted.Together(0, 4), 4);
  EXPECT_DOUBLE_EQ(fitted.Together(0, 0), 0);
}

TEST(OverlapFit, ALongerPartNeverMakesTheWholeShorter) {
  const OverlapFit steepest{.quadratic = 1};
  for (double compute = 0; compute < 4; compute += 0.125) {
    for (double memory = 0; memory < 4; memory += 0.125) {
      EXPECT_LE(steepest.Together(compute, memory), steepest.Together(compute + 0.125, memory)) << compute << memory;
      EXPECT_LE(steepest.Together(compute, memory), steepest.Together(compute, memory + 0.125)) << compute << memory;
    }
  }
}

}  // namespace
}  // namespace tactus
