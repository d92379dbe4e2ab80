// Every tiny model in the f32 reference mode against transformers, under every kernel set of this machine.
#include <gtest/gtest.h>

#include <filesystem>

#include "golden/golden_case.h"

namespace tactus::test {
namespace {

// Both sides sum in f32, in different orders: the logits of the tiny models are of order 1 to 10, and two layers of 32 to
// 256 columns leave differences of some 1e-6. A wrong operator is off by 1e-2 and more.
constexpr double kTolerance = 1e-4;

std::vector<std::string> TinyModels() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TACTUS_SOURCE_DIR "/tests/golden/data")) {
    if (std::filesystem::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, ReferenceModeAgreesWithTransformers) {
  const std::filesystem::path folder = std::filesystem::path(TACTUS_SOURCE_DIR "/tests/golden/data") / GetParam();
  const auto gguf = folder / "model.gguf";
  auto description = DescribeModel((std::filesystem::exists(gguf) ? gguf : folder).string());
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  LoadWeightsOptions load;
  load.dequantize_to_f32 = true;
  auto weights = LoadWeights(*description, load);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  auto numerics = ChooseNumerics({.dtype = "float32"}, description->config.weight_dtype);
  ASSERT_TRUE(numerics.ok());
  const std::vector<GoldenCase> cases = ReadGoldenCases((folder / "golden.json").string());
  ASSERT_FALSE(cases.empty());
  for (const kernels::Ops* ops : kernels::RunnableOps()) {
    for (const GoldenCase& golden : cases) {
      SCOPED_TRACE(golden.name + " with kernels " + ops->name);
      ASSERT_FALSE(golden.logits.empty());
      auto run = RunGoldenCase(description->config, *weights, golden, *numerics, ops);
      ASSERT_TRUE(run.ok()) << run.status().ToString();
      EXPECT_LE(run->logits_error, kTolerance);
      // The first token that may differ is one whose margin is within twice the tolerance; the tiny models have none.
      size_t binding = 0;
      while (binding < golden.greedy.size() && golden.greedy_margin[binding] > 2 * kTolerance) ++binding;
      EXPECT_GE(run->equal_tokens, binding);
      EXPECT_EQ(binding, golden.greedy.size());
      RecordProperty("logits_error", std::to_string(run->logits_error));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenTest, testing::ValuesIn(TinyModels()), [](const auto& test) {
  std::string name = test.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace tactus::test
