// Frequencies against transformers' formulas, evaluated here in double, and the properties of dynamic scaling.
#include "compute/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tactus::compute {
namespace {

constexpr int32_t kDim = 64;

double Base(int32_t i, double theta) {
  return std::pow(theta, -2.0 * i / kDim);
}

TEST(Rope, PlainFrequenciesMatchTransformers) {
  RopeConfig config;
  config.theta = 100000.0f;
  const Rope rope(config, kDim, 8192);
  ASSERT_EQ(rope.inv_freq().size(), 32u);
  EXPECT_EQ(rope.inv_freq()[0], 1.0f);
  for (int32_t i = 0; i < kDim / 2; ++i) {
    EXPECT_NEAR(rope.inv_freq()[static_cast<size_t>(i)] / Base(i, 100000.0), 1.0, 2e-7) << i;
  }
  EXPECT_EQ(rope.table().rotary_dim, kDim);
  EXPECT_FALSE(rope.table().interleaved);
}

TEST(Rope, LinearDividesEveryFrequency) {
  RopeConfig config;
  config.scaling = RopeScaling::kLinear;
  config.factor = 4.0f;
  const Rope rope(config, kDim, 8192), plain(RopeConfig{}, kDim, 8192);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(rope.inv_freq()[i], plain.inv_freq()[i] / 4.0f);
}

TEST(Rope, FrequencyFactorsDivide) {
  RopeConfig config;
  config.interleaved = true;
  for (int i = 0; i < kDim / 2; ++i) config.frequency_factors.push_back(1.0f + static_cast<float>(i) / 8.0f);
  const Rope rope(config, kDim, 8192), plain(RopeConfig{}, kDim, 8192);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(rope.inv_freq()[i], plain.inv_freq()[i] / config.frequency_factors[i]);
  EXPECT_TRUE(rope.table().interleaved);
}

// Llama 3.1's numbers: short waves are kept, long ones divided by 8, with a smooth transition.
TEST(Rope, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeConfig config;
  config.theta = 500000.0f;
  config.scaling = RopeScaling::kLlama3;
  config.factor = 8.0f;
  config.original_max_position = 8192;
  const Rope rope(config, kDim, 131072);
  int kept = 0, divided = 0, between = 0;
  for (int32_t i = 0; i < kDim / 2; ++i) {
    const double f = Base(i, 500000.0), wave = 2 * M_PI / f, ours = rope.inv_freq()[static_cast<size_t>(i)];
    double expected = f;
    if (wave > 8192.0 / 1.0) {
      expected = f / 8, ++divided;
    } else if (wave >= 8192.0 / 4.0) {
      const double smooth = (8192.0 / wave - 1.0) / (4.0 - 1.0);
      expected = (1 - smooth) * f / 8 + smooth * f, ++between;
    } else {
      ++kept;
    }
    EXPECT_NEAR(ours / expected, 1.0, 1e-6) << i;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(between, 0);
  EXPECT_GT(divided, 0);
}

// Llama 4 Scout: both factors are 1, so that no wave lies between. The longest kept wave is the original length.
TEST(Rope, Llama3WithEqualFactorsHasNoTransition) {
  RopeConfig config;
  config.theta = 500000.0f;
  config.scaling = RopeScaling::kLlama3;
  config.factor = 16.0f;
  config.low_freq_factor = config.high_freq_factor = 1.0f;
  config.original_max_position = 8192;
  const Rope rope(config, kDim, 131072);
  for (int32_t i = 0; i < kDim / 2; ++i) {
    const double f = Base(i, 500000.0), expected = 2 * M_PI / f > 8192.0 ? f / 16 : f;
    EXPECT_NEAR(rope.inv_freq()[static_cast<size_t>(i)] / expected, 1.0, 1e-6) << i;
  }
  // The first wave is of 2 pi positions: exactly the length over the factor, for some of these.
  for (int32_t length = 1; length <= 64; ++length) {
    config.original_max_position = length;
    config.low_freq_factor = config.high_freq_factor = static_cast<float>(length) / 6.283185307179586f;
    EXPECT_FALSE(std::isnan(Rope(config, kDim, 64).inv_freq()[0])) << length;
  }
}

TEST(Rope, DynamicBaseDependsOnMaxModelLenAlone) {
  RopeConfig config;
  config.scaling = RopeScaling::kDynamic;
  config.factor = 2.0f;
  config.original_max_position = 2048;
  const Rope plain(RopeConfig{}, kDim, 2048);
  EXPECT_EQ(Rope(config, kDim, 512).inv_freq(), plain.inv_freq());
  EXPECT_EQ(Rope(config, kDim, 2048).inv_freq(), plain.inv_freq());
  const Rope longer(config, kDim, 6144);
  const double base = 10000.0 * std::pow(2.0 * 6144 / 2048 - 1.0, 64.0 / 62.0);
  for (int32_t i = 0; i < kDim / 2; ++i) {
    EXPECT_NEAR(longer.inv_freq()[static_cast<size_t>(i)] / Base(i, base), 1.0, 1e-6) << i;
  }
}

}  // namespace
}  // namespace tactus::compute
