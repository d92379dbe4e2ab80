// Gemma 3 270M, real weights in mixed formats (Q8_0, Q5_0, Q4_K, Q6_K), compared with transformers: logits, greedy
// tokens and perplexity. Slow tier; needs the model file (TACTUS_GEMMA3, scripts/get_gemma3.sh).
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/check.h"
#include "golden/golden_case.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

class Gemma3Test : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TACTUS_GEMMA3");
    if (path == nullptr)
      GTEST_SKIP() << "TACTUS_GEMMA3 is not set: scripts/get_gemma3.sh fetches 245 MB and prints the path";
    auto description = compute::DescribeModel(path);
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    description_ = std::move(*description);
    auto cases = ReadGoldenCases(test::SourcePath("tests/golden/data/gemma3-270m.json"));
    ASSERT_TRUE(cases.ok()) << cases.status().ToString();
    golden_ = cases->front();
  }
  GoldenRun Run(const compute::NumericsOptions& options) {
    auto numerics = compute::ChooseNumerics(options, description_.config.weight_dtype);
    TACTUS_CHECK_MSG(numerics.ok(), numerics.status().ToString());
    compute::LoadWeightsOptions load = compute::LoadOptionsFor(*numerics);
    load.threads = 2;
    auto weights = compute::LoadWeights(description_, load, SystemClock());
    TACTUS_CHECK_MSG(weights.ok(), weights.status().ToString());
    auto run = RunGoldenCase(description_.config, *weights, golden_, *numerics, compute::SelectOps());
    TACTUS_CHECK_MSG(run.ok(), run.status().ToString());
    RecordProperty("perplexity", std::to_string(run->perplexity));
    RecordProperty("logits_error", std::to_string(run->logits_error));
    return *run;
  }
  compute::ModelDescription description_;
  GoldenCase golden_;
};

TEST_F(Gemma3Test, ReferenceModeAgreesWithTransformers) {
  const GoldenRun run = Run({.dtype = "float32"});
  constexpr double kTolerance = 5e-3;
  EXPECT_LE(run.logits_error, kTolerance);
  EXPECT_NEAR(run.perplexity / golden_.perplexity, 1.0, 1e-4);
  size_t binding = 0;  // tokens whose lead is larger than both errors
  while (binding < golden_.greedy.size() && golden_.greedy_margin[binding] > 2 * kTolerance) ++binding;
  EXPECT_GE(run.equal_tokens, binding);
}

TEST_F(Gemma3Test, DefaultNumericsKeepThePerplexity) {
  const GoldenRun run = Run({});
  EXPECT_NEAR(run.perplexity / golden_.perplexity, 1.0, 0.01);
  EXPECT_LE(run.logits_error, 0.5);
}

}  // namespace
}  // namespace tactus::test
