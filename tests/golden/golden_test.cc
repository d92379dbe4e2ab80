// Compares every tiny model in the f32 reference mode with transformers, for every kernel set of this machine.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "compute/config/architecture.h"
#include "golden/golden_case.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

// Both sides sum in f32, in different orders: the logits of the tiny models are of order 1 to 10, and two layers of 32
// to 256 columns give differences of some 1e-6. A wrong operator is off by 1e-2 or more.
constexpr double kTolerance = 1e-4;

std::vector<std::string> TinyModels() {
  std::vector<std::string> names;
  std::error_code error;  // a missing folder has no models, which GoldenData detects
  for (const auto& entry : std::filesystem::directory_iterator(test::SourcePath("tests/golden/data"), error)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, ReferenceModeAgreesWithTransformers) {
  const std::filesystem::path folder = std::filesystem::path(test::SourcePath("tests/golden/data")) / GetParam();
  const auto gguf = folder / "model.gguf";
  auto description = compute::DescribeModel((std::filesystem::exists(gguf) ? gguf : folder).string());
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  compute::LoadWeightsOptions load;
  load.dequantize_to_f32 = true;
  auto weights = compute::LoadWeights(*description, load, SystemClock());
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  auto numerics = compute::ChooseNumerics({.dtype = "float32"}, description->config.weight_dtype);
  ASSERT_TRUE(numerics.ok());
  const auto cases = ReadGoldenCases((folder / "golden.json").string());
  ASSERT_TRUE(cases.ok()) << cases.status().ToString();
  for (const compute::Ops* ops : compute::RunnableOps()) {
    for (const GoldenCase& golden : *cases) {
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

// Compares the serving pass with the same reference, with KV in f32 to test the operators alone. Measured errors: f32
// activations as in the reference mode, 16 bits at most 6e-4, bf16 0.16, int8 0.17, q8_0 weights 0.25; a wrong plane or
// scale is off by 1 or more.
TEST_P(GoldenTest, PackedNumericsStayWithinTolerance) {
  constexpr double kExact = 1e-4, kBf16 = 0.2, kInt8 = 0.3, kMixed = 0.15;
  const std::filesystem::path folder = std::filesystem::path(test::SourcePath("tests/golden/data")) / GetParam();
  const auto gguf = folder / "model.gguf";
  auto description = compute::DescribeModel((std::filesystem::exists(gguf) ? gguf : folder).string());
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  const compute::DType stored = description->config.weight_dtype;
  const bool integers = compute::InfoOf(stored).block_elements > 1;
  // A quantised folder has other matrices in bf16.
  const double kInt16 = std::filesystem::exists(gguf) ? 2e-3 : kBf16;
  struct Variant {
    compute::NumericsOptions options;
    double tolerance;
  };
  std::vector<Variant> variants;
  if (integers) {
    variants = {{{.kv_cache_dtype = "float32"}, kMixed},
                {{.activation_dtype = "int16", .kv_cache_dtype = "float32"}, kInt16},
                {{.activation_dtype = "int8", .kv_cache_dtype = "float32"}, kInt8},
                {{.activation_dtype = "bfloat16", .kv_cache_dtype = "float32"}, kBf16}};
  } else {
    variants = {{{.dtype = "bfloat16", .kv_cache_dtype = "float32"}, kBf16},
                {{.quantization = "q8_0", .kv_cache_dtype = "float32"}, kInt8}};
    if (stored != compute::DType::kBF16) variants.push_back({{.kv_cache_dtype = "float32"}, kExact});
  }
  variants.push_back({{.activation_dtype = "float32", .kv_cache_dtype = "float32"}, kExact});
  const auto cases = ReadGoldenCases((folder / "golden.json").string());
  ASSERT_TRUE(cases.ok()) << cases.status().ToString();
  for (const Variant& v : variants) {
    auto numerics = compute::ChooseNumerics(v.options, stored);
    ASSERT_TRUE(numerics.ok()) << numerics.status().ToString();
    auto weights = compute::LoadWeights(*description, compute::LoadOptionsFor(*numerics), SystemClock());
    ASSERT_TRUE(weights.ok()) << weights.status().ToString();
    ASSERT_NE(weights->packed, nullptr);
    for (const compute::Ops* ops : compute::RunnableOps()) {
      double error = 0.0;
      for (const GoldenCase& golden : *cases) {
        auto run = RunGoldenCase(description->config, *weights, golden, *numerics, ops);
        ASSERT_TRUE(run.ok()) << run.status().ToString();
        error = std::max(error, run->logits_error);
      }
      SCOPED_TRACE(compute::NumericsText(*numerics) + " with kernels " + ops->name);
      EXPECT_LE(error, v.tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenTest, testing::ValuesIn(TinyModels()), [](const auto& test) {
  std::string name = test.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

// The list in the data's README.md: a missing model would silently remove its tests.
TEST(GoldenData, EveryModelExists) {
  EXPECT_EQ(TinyModels(), (std::vector<std::string>{"bloom",
                                                    "cohere",
                                                    "dots1",
                                                    "ernie-moe",
                                                    "exaone4",
                                                    "falcon-40b",
                                                    "falcon-7b",
                                                    "falcon-rw",
                                                    "flex-olmo",
                                                    "gemma",
                                                    "gemma2",
                                                    "gemma3",
                                                    "gemma3-pictures",
                                                    "gemma3n",
                                                    "gemma4",
                                                    "gemma4-12b",
                                                    "gemma4-experts",
                                                    "gguf-bf16",
                                                    "gguf-bloom",
                                                    "gguf-command-r",
                                                    "gguf-dots1",
                                                    "gguf-ernie-moe",
                                                    "gguf-exaone4",
                                                    "gguf-experts-mixed",
                                                    "gguf-f16",
                                                    "gguf-falcon-40b",
                                                    "gguf-falcon-7b",
                                                    "gguf-gemma",
                                                    "gguf-gemma2",
                                                    "gguf-gemma3",
                                                    "gguf-gemma3n",
                                                    "gguf-gemma4",
                                                    "gguf-gemma4-12b",
                                                    "gguf-gemma4-experts",
                                                    "gguf-glm4",
                                                    "gguf-glm4-moe",
                                                    "gguf-gpt-oss",
                                                    "gguf-gpt2",
                                                    "gguf-gptneox",
                                                    "gguf-granite",
                                                    "gguf-granite-moe",
                                                    "gguf-hunyuan",
                                                    "gguf-hunyuan-moe",
                                                    "gguf-llama4",
                                                    "gguf-minimax-m2",
                                                    "gguf-ministral3",
                                                    "gguf-mistral",
                                                    "gguf-mixed",
                                                    "gguf-mixtral",
                                                    "gguf-olmo2",
                                                    "gguf-olmo3",
                                                    "gguf-olmoe",
                                                    "gguf-phi-moe",
                                                    "gguf-phi3",
                                                    "gguf-phi3.5",
                                                    "gguf-q4_0",
                                                    "gguf-q4_1",
                                                    "gguf-q4_k",
                                                    "gguf-q5_0",
                                                    "gguf-q5_1",
                                                    "gguf-q5_k",
                                                    "gguf-q6_k",
                                                    "gguf-q8_0",
                                                    "gguf-qwen2",
                                                    "gguf-qwen2-moe",
                                                    "gguf-qwen3",
                                                    "gguf-qwen3-moe",
                                                    "gguf-seed-oss",
                                                    "gguf-smollm3",
                                                    "gguf-stablelm",
                                                    "gguf-starcoder2",
                                                    "glm4",
                                                    "glm4-moe",
                                                    "gpt-neox",
                                                    "gpt-oss",
                                                    "gpt-oss-mxfp4",
                                                    "gpt2",
                                                    "granite",
                                                    "granite-moe",
                                                    "granite-moe-shared",
                                                    "hunyuan",
                                                    "hunyuan-moe",
                                                    "llama-bias",
                                                    "llama-dynamic",
                                                    "llama-gqa",
                                                    "llama-gqa-bf16",
                                                    "llama-gqa-f16",
                                                    "llama-mha",
                                                    "llama-mqa-linear",
                                                    "llama-sharded",
                                                    "llama4",
                                                    "llama4-pictures",
                                                    "minimax-m2",
                                                    "ministral3",
                                                    "mistral-small",
                                                    "mistral-window",
                                                    "mixtral",
                                                    "olmo2",
                                                    "olmo3",
                                                    "olmoe",
                                                    "opt",
                                                    "phi-moe",
                                                    "phi3",
                                                    "phi3.5",
                                                    "phi4-mini",
                                                    "pythia-serial",
                                                    "qwen2",
                                                    "qwen2-moe",
                                                    "qwen2-window",
                                                    "qwen3",
                                                    "qwen3-moe",
                                                    "seed-oss",
                                                    "smollm3",
                                                    "stablelm",
                                                    "stablelm-parallel",
                                                    "starcoder2",
                                                    "yi"}));
}

// A row of architectures.def without a model would be an untested architecture.
TEST(GoldenData, EveryArchitectureHasAModel) {
  std::set<std::string, std::less<>> run;
  for (const std::string& name : TinyModels()) {
    const std::filesystem::path folder = std::filesystem::path(test::SourcePath("tests/golden/data")) / name;
    const auto gguf = folder / "model.gguf";
    const auto description = compute::DescribeModel((std::filesystem::exists(gguf) ? gguf : folder).string());
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    run.insert(description->config.architecture);
  }
  for (const compute::Architecture* architecture : compute::Architectures()) {
    EXPECT_TRUE(run.contains(architecture->name))
        << "no folder of tests/golden/data has a '" << architecture->name << "': tools/make_tiny_models.py";
  }
}

class GoldenFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("tactus_golden_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // One case with a vocabulary of three; `logits`: of position 1.
  Result<std::vector<GoldenCase>> Read(const std::string& case_json, const std::vector<float>& logits) {
    std::ofstream(folder_ / "golden.json") << R"({"vocab_size": 3, "cases": [)" << case_json << "]}";
    std::ofstream(folder_ / "l.f32", std::ios::binary)
        .write(reinterpret_cast<const char*>(logits.data()),
               static_cast<std::streamsize>(logits.size() * sizeof(float)));
    return ReadGoldenCases((folder_ / "golden.json").string());
  }
  static std::string CaseJson(const std::string& margins, const std::string& file = "l.f32") {
    return R"({"name": "a", "max_model_len": 8, "prompt": [1, 2], "greedy": [0], "greedy_margin": )" + margins +
           R"(, "logits_file": ")" + file + R"(", "logit_positions": [1]})";
  }
  std::filesystem::path folder_;
};

TEST_F(GoldenFile, MissingOrInvalidDataIsAnError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto good = Read(CaseJson("[1]"), {1, 2, 3});
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  EXPECT_EQ(good->at(0).logits, (std::vector<float>{1, 2, 3}));
  const auto error = [](const Result<std::vector<GoldenCase>>& r) {
    return r.ok() ? std::string("none") : r.status().message();
  };
  EXPECT_NE(error(Read("", {})).find("has no cases"), std::string::npos);
  EXPECT_NE(error(Read(CaseJson("[1]"), {})).find("0 bytes"), std::string::npos);
  EXPECT_NE(error(Read(CaseJson("[1]"), {1, 2})).find("8 bytes"), std::string::npos);
  EXPECT_NE(error(Read(CaseJson("[1]"), {1, 2, 3, 4})).find("16 bytes"), std::string::npos);
  EXPECT_NE(error(Read(CaseJson("[1]"), {1, nan, 3})).find("not finite"), std::string::npos);
  EXPECT_NE(error(Read(CaseJson("[]"), {1, 2, 3})).find("0 margins for 1 tokens"), std::string::npos);
  EXPECT_NE(error(Read(CaseJson("[1]", "absent"), {1, 2, 3})).find("no logits at"), std::string::npos);
  EXPECT_NE(error(Read(R"({"name": "a", "max_model_len": 8, "prompt": [1], "greedy": [0], "greedy_margin": [1]})", {}))
                .find("no logits"),
            std::string::npos);
  EXPECT_NE(error(ReadGoldenCases((folder_ / "absent.json").string())).find("no golden data at"), std::string::npos);
}

TEST(GoldenRun, NonFiniteLogitIsAnErrorWithItsPosition) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  double error = 0.25;
  EXPECT_TRUE(CompareLogit(1.0, 1.5, 4, 17, &error).ok());
  EXPECT_EQ(error, 0.5);
  EXPECT_TRUE(CompareLogit(-1.0, -1.25, 4, 17, &error).ok());
  EXPECT_EQ(error, 0.5);
  for (const auto& [ours, reference] : {std::pair(kNan, 1.0), {kInfinity, 1.0}, {kInfinity, kInfinity}, {1.0, kNan}}) {
    const Status status = CompareLogit(ours, reference, 4, 17, &error);
    ASSERT_FALSE(status.ok()) << ours << " against " << reference;
    EXPECT_NE(status.message().find("token 17 at position 4"), std::string::npos) << status.message();
  }
  EXPECT_EQ(error, 0.5);
}

// A NaN in one weight of the last matrix, then in one that affects every logit.
TEST(GoldenRun, ModelWithANanWeightFails) {
  const std::string folder = test::SourcePath("tests/golden/data/llama-mha");
  auto description = compute::DescribeModel(folder);
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  compute::LoadWeightsOptions load;
  load.dequantize_to_f32 = true;
  auto weights = compute::LoadWeights(*description, load, SystemClock());
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  auto numerics = compute::ChooseNumerics({.dtype = "float32"}, description->config.weight_dtype);
  const auto cases = ReadGoldenCases(folder + "/golden.json");
  ASSERT_TRUE(cases.ok()) << cases.status().ToString();
  const GoldenCase& golden = cases->front();
  const auto poisoned = [&](compute::MatrixView compute::ModelWeights::* matrix, int64_t row) {
    compute::CpuWeights bad = *weights;
    const compute::MatrixView& m = bad.*matrix;
    std::vector<float> copy(static_cast<const float*>(m.data), static_cast<const float*>(m.data) + m.rows * m.cols);
    copy[static_cast<size_t>(row * m.cols)] = std::numeric_limits<float>::quiet_NaN();
    (bad.*matrix).data = copy.data();
    const auto run = RunGoldenCase(description->config, bad, golden, *numerics, compute::SelectOps());
    return run.ok() ? std::string("no error") : run.status().message();
  };
  const std::string one = poisoned(&compute::ModelWeights::lm_head, 7);
  EXPECT_NE(one.find("token 7 at position " + std::to_string(golden.logit_positions.front())), std::string::npos)
      << one;
  const std::string all = poisoned(&compute::ModelWeights::embedding, golden.prompt.front());
  EXPECT_NE(all.find("token 0 at position"), std::string::npos) << all;
}

}  // namespace
}  // namespace tactus::test
