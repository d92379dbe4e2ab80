// Whole models with quantised weights, in two shards, against the same models with the decoded weights in f32.
#include <gtest/gtest.h>

#include <cmath>

#include "compute/exec/quantised_folders.h"
#include "compute/exec/tiny_model.h"

namespace tactus::test::quantised_models_test {
namespace {

using namespace quantised;  // NOLINT: the models of this test

constexpr int32_t kPrompt = 24;

std::vector<float> Logits(const std::string& path, const compute::NumericsOptions& numerics) {
  const TinyModel model = LoadModel(path, numerics);
  compute::CpuExecutorOptions options = model.Options();
  options.max_model_len = 64;
  auto runner = compute::StepRunner::Create(model.config, model.weights, options);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  StepDriver driver(**runner, options.num_blocks, options.block_size, true);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < kPrompt; ++i) tokens.push_back((i * 11 + 8) % kVocab);
  const int32_t s = driver.Add(MakeRequest(std::move(tokens), Greedy()));
  driver.Step({{s, kPrompt}}, true);
  std::vector<float> all;
  for (const auto& [position, logits] : driver.at(s).logits) all.insert(all.end(), logits.begin(), logits.end());
  TACTUS_CHECK(all.size() == static_cast<size_t>(kPrompt * kVocab));
  return all;
}

// In the 2-norm, relative.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(error / norm);
}

class QuantisedModels : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    WriteQuantised(GetParam(), quantised_);
    WriteDecoded(GetParam(), quantised_, decoded_);
  }
  TempFolder quantised_, decoded_;
};

TEST_P(QuantisedModels, TheReferencePassIsThatOfTheDecodedWeights) {
  const std::vector<float> want = Logits(decoded_.path(), {.dtype = "float32"});
  EXPECT_TRUE(std::isfinite(want[0]) && want[0] != want[1]);
  EXPECT_EQ(Logits(quantised_.path(), {.dtype = "float32"}), want);
}

TEST_P(QuantisedModels, ThePackedPassMultipliesTheDecodedWeights) {
  const compute::NumericsOptions f32 = {.activation_dtype = "float32", .kv_cache_dtype = "float32"};
  if (GetParam().exact) {
    const std::vector<float> want = Logits(decoded_.path(), {.dtype = "float32"});
    EXPECT_LT(Distance(Logits(quantised_.path(), f32), want), 1e-5);
    EXPECT_LT(Distance(Logits(quantised_.path(), {.kv_cache_dtype = "float32"}), want), 0.05);
  } else {
    EXPECT_EQ(Logits(quantised_.path(), {}), Logits(decoded_.path(), {.dtype = "bfloat16"}));
  }
}

TEST_P(QuantisedModels, AreDescribedByTheirFormat) {
  const auto description = compute::DescribeModel(quantised_.path());
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  ASSERT_NE(description->quantization, nullptr);
  EXPECT_EQ(compute::InfoOf(description->config.weight_dtype).block_elements > 1, GetParam().exact);
  EXPECT_EQ(compute::DescribeModel(decoded_.path())->quantization, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantisedModels, testing::ValuesIn(kFormats),
                         [](const auto& test) { return std::string(test.param.name); });

// Without its quantization_config a folder has no weights but codes.
TEST(QuantisedFolder, CodesWithoutAConfigurationAreRefused) {
  const TempFolder folder;
  WriteQuantised(kFormats[0], folder);
  folder.Write("config.json", ConfigOf(kFormats[0]).dump());
  const auto description = compute::DescribeModel(folder.path());
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  EXPECT_REFUSED(compute::LoadWeights(*description, {}, SystemClock()).status(), StatusCode::kDataLoss,
                 "'model.layers.0.self_attn.q_proj.weight' [128, 128] is f8_e4m3", "quantization_config");
}

}  // namespace
}  // namespace tactus::test::quantised_models_test
