// The default model compared with transformers: in the f32 reference mode, and that the default numerics give the same
// outputs. Slow tier; needs the model file (TACTUS_DEFAULT_MODEL, else the path of scripts/get_default_model.sh).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "compute/model/catalog.h"
#include "golden/golden_case.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

// 30 layers in f32 with another order of summation; logits are of order 25.
constexpr double kTolerance = 5e-3;
constexpr double kBf16 = 0.3, kInt8 = 0.9, kRows = 1.7;  // twice the measured errors, for other kernel sets

class DefaultModelTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TACTUS_DEFAULT_MODEL");
    auto resolved = compute::ResolveModel(path != nullptr ? path : "");
    if (!resolved.ok()) GTEST_SKIP() << "no default model: " << resolved.status().message();
    auto description = compute::DescribeModel(*resolved);
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    description_ = std::move(*description);
    auto cases = ReadGoldenCases(test::SourcePath("tests/golden/data/smollm2-135m.json"));
    ASSERT_TRUE(cases.ok()) << cases.status().ToString();
    cases_ = std::move(*cases);
  }
  Result<compute::CpuWeights> Load(const compute::Numerics& numerics) {
    compute::LoadWeightsOptions load = compute::LoadOptionsFor(numerics);
    load.threads = 2;
    return compute::LoadWeights(description_, load, SystemClock());
  }
  compute::ModelDescription description_;
  std::vector<GoldenCase> cases_;
};

TEST_F(DefaultModelTest, ReferenceModeAgreesWithTransformers) {
  auto numerics = compute::ChooseNumerics({.dtype = "float32"}, description_.config.weight_dtype);
  auto weights = Load(*numerics);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  for (const GoldenCase& golden : cases_) {
    SCOPED_TRACE(golden.name);
    auto run = RunGoldenCase(description_.config, *weights, golden, *numerics, compute::SelectOps());
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    EXPECT_LE(run->logits_error, kTolerance);
    size_t binding = 0;
    while (binding < golden.greedy.size() && golden.greedy_margin[binding] > 2 * kTolerance) ++binding;
    EXPECT_GE(run->equal_tokens, binding);
  }
}

TEST_F(DefaultModelTest, DefaultNumericsGiveTheReferenceAnswer) {
  auto numerics = compute::ChooseNumerics({.dtype = "auto"}, description_.config.weight_dtype);
  auto weights = Load(*numerics);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  GoldenCase golden = cases_.front();
  golden.greedy.resize(8);  // "The capital of France is Paris.", end
  for (const compute::Ops* ops : compute::RunnableOps()) {
    // The reference takes minutes; the kernels' tests compare every set with it bit by bit.
    if (std::string_view(ops->name) == "ref") continue;
    SCOPED_TRACE(ops->name);
    auto run = RunGoldenCase(description_.config, *weights, golden, *numerics, ops);
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    EXPECT_EQ(run->greedy, golden.greedy);
    // The largest error over all logits; the leading ones have smaller errors and are 0.08 apart.
    EXPECT_LE(run->logits_error, 0.35);
  }
}

// Optional coarser numerics: outputs may differ, logits are within a tolerance. Logits are of order 25.
TEST_F(DefaultModelTest, CoarserNumericsStayWithinTolerance) {
  struct Variant {
    compute::NumericsOptions options;
    double tolerance;
  };
  for (const Variant& v :
       {Variant{{.activation_dtype = "int8"}, kInt8}, Variant{{.activation_dtype = "bfloat16"}, kBf16},
        Variant{{.quantization = "q8_0"}, kInt8}, Variant{{.quantization = "int8", .kv_cache_dtype = "int8"}, kRows}}) {
    auto numerics = compute::ChooseNumerics(v.options, description_.config.weight_dtype);
    auto weights = Load(*numerics);
    ASSERT_TRUE(weights.ok()) << weights.status().ToString();
    double error = 0.0;
    for (GoldenCase golden : cases_) {
      golden.greedy.resize(1);
      auto run = RunGoldenCase(description_.config, *weights, golden, *numerics, compute::SelectOps());
      ASSERT_TRUE(run.ok()) << run.status().ToString();
      error = std::max(error, run->logits_error);
    }
    EXPECT_LE(error, v.tolerance) << compute::NumericsText(*numerics);
    EXPECT_GT(error, 1e-3) << compute::NumericsText(*numerics) << ": it must be coarser than f32";
  }
}

}  // namespace
}  // namespace tactus::test
