// Weights and draws of sampling, against the CPU's.
#include "compute/cuda/kernels/sample_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "compute/model/sampler.h"

namespace tactus::compute::cuda {
namespace {

// The weight of a token beside one of weight 2^44 follows from its probability.
TEST(SampleWeightsTest, WeightsHaveTheCpusBits) {
  for (const float temperature : {1.0f, 0.7f, 13.0f}) {
    for (int i = 0; i < 4000; ++i) {
      const float logit = -0.0079f * static_cast<float>(i);
      const std::vector<float> logits = {0.0f, logit};
      Sampler sampler(2);
      ASSERT_TRUE(sampler.Scan(logits));
      SamplingParams params;
      params.temperature = temperature;
      sampler.Shape(params);
      const double p = sampler.Probability(1);
      const Weights weights{0.0f, temperature, 0.0f};
      ASSERT_EQ(weights.Of(logit), static_cast<Sum>(std::llround(p / (1.0 - p) * 0x1p44))) << logit;
    }
  }
}

TEST(SampleWeightsTest, UniformNumbersAreTheCpus) {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t seed = rng.Next64(), stream = rng.Next64(), index = rng.Next64();
    ASSERT_EQ(UniformOf(seed, stream, index), UniformAt(seed, stream, index));
  }
}

TEST(SampleWeightsTest, KeysHaveTheOrderOfFloats) {
  const std::vector<float> ascending = {kLowest, -2.0f, -1e-40f, 0.0f, 1e-40f, 1.0f, 1.0000001f, -kLowest};
  for (size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_EQ(ValueOf(KeyOf(ascending[i])), ascending[i]);
    if (i > 0) {
      EXPECT_LT(KeyOf(ascending[i - 1]), KeyOf(ascending[i]));
    }
  }
  EXPECT_EQ(KeyOf(0.0f), KeyOf(-0.0f));
}

}  // namespace
}  // namespace tactus::compute::cuda
