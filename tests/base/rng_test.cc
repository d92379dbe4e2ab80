#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tactus {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(Philox, MatchesKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0}, {0, 0, 0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(Philox4x32({f, f}, {f, f, f, f}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, UniformIntCoversItsRangeEvenly) {
  Rng rng(7);
  int counts[6] = {};
  for (int i = 0; i < 60000; ++i) {
    const int64_t v = rng.UniformInt(-2, 3);
    ASSERT_GE(v, -2);
    ASSERT_LE(v, 3);
    ++counts[v + 2];
  }
  for (int c : counts) EXPECT_NEAR(c, 10000, 500);
}

TEST(Rng, MomentsOfNormalAndExponential) {
  Rng rng(3);
  double sum = 0, squares = 0, exponential = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = rng.Normal();
    sum += x;
    squares += x * x;
    exponential += rng.Exponential(2.5);
  }
  EXPECT_NEAR(sum / n, 0.0, 0.02);
  EXPECT_NEAR(squares / n, 1.0, 0.03);
  EXPECT_NEAR(exponential / n, 2.5, 0.05);
}

TEST(Rng, PositionsAreIndependentOfOrder) {
  const double a = UniformAt(42, 1, 1000);
  UniformAt(42, 0, 5);
  EXPECT_EQ(a, UniformAt(42, 1, 1000));
  EXPECT_NE(a, UniformAt(42, 2, 1000));
  EXPECT_NE(a, UniformAt(43, 1, 1000));
}

// All 64 bits of seed, stream and index count.
TEST(Rng, AllBitsOfTheArgumentsCount) {
  const uint64_t upper = uint64_t{1} << 32;
  const double a = UniformAt(42, 1, 1000);
  EXPECT_NE(a, UniformAt(42 + upper, 1, 1000));
  EXPECT_NE(a, UniformAt(42, 1 + upper, 1000));
  EXPECT_NE(a, UniformAt(42, 1, 1000 + upper));
}

// Philox's first output for an all-zero key and counter: its first two words, the low one first, and their upper 53
// bits.
TEST(Rng, OutputsUseTheFirstPhiloxWords) {
  Rng rng(0, 0);
  EXPECT_EQ(rng.Next64(), 0xe169c58d6627e8d5ULL);
  EXPECT_EQ(UniformAt(0, 0, 0), static_cast<double>(0xe169c58d6627e8d5ULL >> 11) / 9007199254740992.0);
  EXPECT_EQ(Rng(0, 0).UniformInt(10, 19), 10 + 8);  // 0.88 of the range of ten
  EXPECT_EQ(Rng(0, 0).UniformInt(5, 5), 5);
  EXPECT_EQ(Rng(0, 0).UniformInt(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()),
            static_cast<int64_t>(0xe169c58d6627e8d5ULL));
}

}  // namespace
}  // namespace tactus
