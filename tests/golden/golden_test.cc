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

// Packed weights and rounded activations against the same reference, KV in f32 so that the operators alone are seen. Measured: 16
// bits leave at most 6e-4, bf16 0.16, int8 0.17, q8_0 weights 0.25; a plane or a scale that went wrong is off by 1 and more.
TEST_P(GoldenTest, PackedNumericsStayNear) {
  constexpr double kBf16 = 0.2, kInt8 = 0.3;
  const std::filesystem::path folder = std::filesystem::path(TACTUS_SOURCE_DIR "/tests/golden/data") / GetParam();
  const auto gguf = folder / "model.gguf";
  auto description = DescribeModel((std::filesystem::exists(gguf) ? gguf : folder).string());
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  const DType stored = description->config.weight_dtype;
  const bool integers = InfoOf(stored).block_elements > 1;
  struct Variant {
    NumericsOptions options;
    double tolerance;
  };
  std::vector<Variant> variants;
  if (integers) {
    const bool mixed = GetParam() == "gguf-mixed";   // some of its matrices are f16 and f32, which packing rounds to bf16
    variants = {{{.kv_cache_dtype = "float32"}, mixed ? kBf16 : 2e-3},
                {{.activation_dtype = "int8", .kv_cache_dtype = "float32"}, kInt8},
                {{.activation_dtype = "bfloat16", .kv_cache_dtype = "float32"}, kBf16}};
  } else {
    variants = {{{.dtype = "bfloat16", .kv_cache_dtype = "float32"}, kBf16},
                {{.quantization = "q8_0", .kv_cache_dtype = "float32"}, kInt8}};
  }
  const std::vector<GoldenCase> cases = ReadGoldenCases((folder / "golden.json").string());
  for (const Variant& v : variants) {
    auto numerics = ChooseNumerics(v.options, stored);
    ASSERT_TRUE(numerics.ok()) << numerics.status().ToString();
    auto weights = LoadWeights(*description, LoadOptionsFor(*numerics));
    ASSERT_TRUE(weights.ok()) << weights.status().ToString();
    ASSERT_NE(weights->packed, nullptr);
    for (const kernels::Ops* ops : kernels::RunnableOps()) {
      double error = 0.0;
      for (const GoldenCase& golden : cases) {
        auto run = RunGoldenCase(description->config, *weights, golden, *numerics, ops);
        ASSERT_TRUE(run.ok()) << run.status().ToString();
        error = std::max(error, run->logits_error);
      }
      SCOPED_TRACE(NumericsText(*numerics) + " with kernels " + ops->name);
      EXPECT_LE(error, v.tolerance);
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
