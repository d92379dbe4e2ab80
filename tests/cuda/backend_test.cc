// The backend's options on the emulated device, from EngineOptions to what the executor computes.
#include <gtest/gtest.h>

#include "base/check.h"
#include "compute/cuda/cuda_backend.h"
#include "compute/exec/quantised_folders.h"
#include "cuda/emulator/emulator.h"
#include "support/result_waiter.h"
#include "support/source_path.h"
#include "support/step_driver.h"

namespace tactus::test::cuda_backend_test {
namespace {

constexpr int32_t kPrompt = 60;

// `model`: its folder; empty: a model of the goldens.
Result<std::unique_ptr<tactus::Backend>> TryBackend(const EngineOptions& options, const std::string& model = {}) {
  const auto description = compute::DescribeModel(model.empty() ? SourcePath("tests/golden/data/llama-gqa") : model);
  TACTUS_CHECK_MSG(description.ok(), description.status().ToString());
  return compute::cuda::MakeCudaBackend(options, *description, SystemClock());
}
std::unique_ptr<tactus::Backend> MakeBackend(const EngineOptions& options, const std::string& model = {}) {
  auto made = TryBackend(options, model);
  TACTUS_CHECK_MSG(made.ok(), made.status().ToString());
  return std::move(made).value();
}

// Logprobs of a few tokens after a prompt that is computed in steps of `chunk` tokens.
// `later`: a limit that is set after the executor was made; 0: none.
std::vector<float> LogprobsOf(const EngineOptions& options, int32_t chunk,
                              int64_t least_split_tokens = kLeastSplitTokens, int64_t later = 0,
                              const std::string& model = {}) {
  const auto backend = MakeBackend(options, model);
  TACTUS_CHECK(backend->LoadWeights({}).ok());
  ExecutorSize size;
  size.num_blocks = 16;
  size.max_model_len = 128;
  size.max_slots = size.max_step_items = 2;
  size.max_step_tokens = 64;
  size.least_split_tokens = least_split_tokens;
  auto executor = backend->CreateExecutor(size);
  TACTUS_CHECK_MSG(executor.ok(), executor.status().ToString());
  if (later > 0) (*executor)->SplitStepsFrom(later);
  ResultWaiter waiter(**executor);
  StepDriver driver(
      [&](const StepPlan& plan, StepResult* result) {
        (*executor)->Submit(plan);
        *result = waiter.Next();
      },
      size.num_blocks, size.block_size);
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.logprobs = 4;
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < kPrompt; ++i) prompt.push_back((7 + i * 13) % (model.empty() ? 320 : quantised::kVocab));
  const int32_t sequence = driver.Add(MakeRequest(std::move(prompt), sampling));
  StepDriver::Sequence& s = driver.at(sequence);
  while (s.output().size() < 4) {
    const StepResult result = driver.Step({{sequence, std::min(chunk, s.pending()), {}}});
    TACTUS_CHECK_MSG(result.status.ok(), result.status.ToString());
  }
  std::vector<float> values;
  for (const auto& step : s.logprobs) {
    for (const auto& token : step.per_token) {
      for (const TokenLogprob& p : token) values.push_back(p.logprob);
    }
  }
  return values;
}

EngineOptions FloatModel() {
  EngineOptions options;
  options.dtype = "float32";
  return options;
}

// The emulated library adds in two halves where it multiplies more than 16 tokens without batch invariance.
TEST(CudaBackend, BatchInvariantDecidesWhetherAStepsSizeMayChangeRounding) {
  EngineOptions options = FloatModel();
  const auto whole = LogprobsOf(options, kPrompt);
  ASSERT_EQ(whole.size(), 4u * 5);
  EXPECT_EQ(whole, LogprobsOf(options, 7)) << "--batch-invariant is on by default";
  options.batch_invariant = false;
  const auto free = LogprobsOf(options, kPrompt);
  EXPECT_NE(free, LogprobsOf(options, 7)) << "--batch-invariant off has not reached the products";
  ASSERT_EQ(free.size(), whole.size());
  for (size_t i = 0; i < free.size(); ++i) EXPECT_NEAR(free[i], whole[i], 1e-4) << i;
}

// Step times and KV are kept by this text: engines of different rounding must not share them.
TEST(CudaBackend, RoundingByTheBatchIsNamedInTheArithmetic) {
  EngineOptions options = FloatModel();
  const std::string on = MakeBackend(options)->Info().arithmetic;
  options.batch_invariant = false;
  EXPECT_NE(MakeBackend(options)->Info().arithmetic, on);
}

TEST(CudaBackend, OverlapRunsStepsOfEnoughTokensInTwoParts) {
  EngineOptions options = FloatModel();
  int64_t products = 0;
  const auto run = [&](const char* overlap, int64_t least_split_tokens, int64_t later = 0) {
    options.overlap = overlap;
    const int64_t before = compute::cuda::emulator::CurrentCounts().products;
    const auto values = LogprobsOf(options, kPrompt, least_split_tokens, later);
    products = compute::cuda::emulator::CurrentCounts().products - before;
    return values;
  };
  const auto whole = run("off", 2);
  const int64_t in_one_part = products;
  EXPECT_EQ(run("nano", kPrompt + 1), whole);
  EXPECT_EQ(products, in_one_part);
  EXPECT_EQ(run("nano", kPrompt), whole);
  EXPECT_GT(products, in_one_part) << "no step ran in two parts";
  EXPECT_EQ(run("nano", ExecutorSize().least_split_tokens), whole);
  EXPECT_EQ(products, in_one_part) << "small steps run in one part where no limit is measured";
  EXPECT_EQ(run("nano", kPrompt + 1, kPrompt), whole);
  EXPECT_GT(products, in_one_part) << "SplitStepsFrom has not changed the limit";
  for (const std::string& finding : compute::cuda::emulator::TakeFindings()) ADD_FAILURE() << finding;
}

TEST(CudaBackend, BuffersOfTheSecondPartAreInTheMemoryPlan) {
  EngineOptions options = FloatModel();
  const MemoryDemand demand{.max_model_len = 128, .max_num_seqs = 2, .max_step_tokens = 1024, .kv_bytes = 1 << 20};
  const auto one = MakeBackend(options)->PlanMemory(demand);
  options.overlap = "nano";
  const auto two = MakeBackend(options)->PlanMemory(demand);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(two->kv_bytes, one->kv_bytes);
  EXPECT_GT(two->total_bytes, one->total_bytes);
}

// ---- --activation-dtype fp8 ----

class CudaFp8Backend : public testing::Test {
 protected:
  void SetUp() override {
    compute::cuda::emulator::SetDeviceShape({.capability = 89});
    options_.activation_dtype = "fp8";
    WriteQuantised(quantised::FormatNamed("compressed_fp8"), fp8_, {.positions = 128});
  }
  void TearDown() override { compute::cuda::emulator::SetDeviceShape({}); }

  void ExpectRefusal(const std::string& model, std::initializer_list<const char*> parts) const {
    const Status status = TryBackend(options_, model).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_EQ(status.param(), "activation-dtype");
    for (const char* part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << " is not in: " << status.message();
    }
  }

  EngineOptions options_;
  const TempFolder fp8_;
};

TEST_F(CudaFp8Backend, TokensAreRoundedAndStepsOfAnySizeRoundAlike) {
  const auto run = [&](int32_t chunk) { return LogprobsOf(options_, chunk, kLeastSplitTokens, 0, fp8_.path()); };
  const auto whole = run(kPrompt);
  EXPECT_EQ(whole, run(7)) << "--batch-invariant is on by default";
  options_.overlap = "nano";
  EXPECT_EQ(LogprobsOf(options_, kPrompt, 2, 0, fp8_.path()), whole);
  options_.overlap = "off";
  options_.activation_dtype = "auto";
  EXPECT_NE(run(kPrompt), whole) << "--activation-dtype fp8 has not reached the products";
  for (const std::string& finding : compute::cuda::emulator::TakeFindings()) ADD_FAILURE() << finding;
}

// Step times and KV are kept by this text.
TEST_F(CudaFp8Backend, TheArithmeticNamesIt) {
  EXPECT_EQ(MakeBackend(options_, fp8_.path())->Info().arithmetic, "fp8 and bf16 activations, KV bf16");
  options_.dtype = "float16";
  EXPECT_EQ(MakeBackend(options_, fp8_.path())->Info().arithmetic, "fp8 and f16 activations, KV f16");
  options_.activation_dtype = "auto";
  EXPECT_EQ(MakeBackend(options_, fp8_.path())->Info().arithmetic, "f16 activations, KV f16");
}

TEST_F(CudaFp8Backend, ItsScratchIsInTheMemoryPlan) {
  const MemoryDemand demand{.max_model_len = 128, .max_num_seqs = 2, .max_step_tokens = 64, .kv_bytes = 1 << 20};
  const auto fp8 = MakeBackend(options_, fp8_.path())->PlanMemory(demand);
  options_.activation_dtype = "auto";
  const auto without = MakeBackend(options_, fp8_.path())->PlanMemory(demand);
  ASSERT_TRUE(fp8.ok() && without.ok());
  EXPECT_GE(fp8->total_bytes - without->total_bytes, int64_t{64} << 20);
}

TEST_F(CudaFp8Backend, CardsWithoutProductsOfFp8AreRefused) {
  compute::cuda::emulator::SetDeviceShape({.capability = 86});
  ExpectRefusal(fp8_.path(), {"--activation-dtype fp8", "compute capability 8.9", "emulated device has 8.6",
                              "use --activation-dtype auto"});
}

TEST_F(CudaFp8Backend, ModelsWithoutSuchWeightsAreRefused) {
  ExpectRefusal("", {"needs matrices in FP8", "this model has bf16", "--activation-dtype auto"});
  const TempFolder integers;
  WriteQuantised(quantised::FormatNamed("compressed_w8a8"), integers);
  ExpectRefusal(integers.path(), {"this model has int8 by row (7), bf16 (2)"});
}

TEST_F(CudaFp8Backend, OptionsThatLeaveNoWeightsInFp8AreRefused) {
  const auto refuse = [&](std::string EngineOptions::* option, const char* value,
                          std::initializer_list<const char*> parts) {
    const std::string before = options_.*option;
    options_.*option = value;
    ExpectRefusal(fp8_.path(), parts);
    options_.*option = before;
  };
  refuse(&EngineOptions::dtype, "float32", {"contradicts --dtype float32", "leave one of them out"});
  refuse(&EngineOptions::dtype, "bfloat16", {"contradicts --dtype bfloat16", "leave --dtype out"});
  refuse(&EngineOptions::quantization, "int8", {"contradicts --quantization int8", "leave one of them out"});
  refuse(&EngineOptions::load_format, "dummy", {"contradicts --load-format dummy", "leave one of them out"});
  options_.activation_dtype = "int8";
  ExpectRefusal(fp8_.path(), {"--activation-dtype int8", "those of --dtype, and fp8"});
}

}  // namespace
}  // namespace tactus::test::cuda_backend_test
