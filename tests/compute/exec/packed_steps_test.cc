// Steps of the serving pass against the same steps of the reference pass, and their cost beside arithmetic: barriers.
#include <gtest/gtest.h>

#include <cmath>

#include "compute/exec/tiny_model.h"
#include "compute/kernels/packed/packed.h"
#include "compute/weights/model_shapes.h"

namespace tactus::test::packed_steps_test {
namespace {

constexpr int32_t kPrompt = 40, kOutput = 6;

Request SomeRequest(int32_t seed) {
  std::vector<TokenId> tokens(kPrompt);
  for (int32_t i = 0; i < kPrompt; ++i) tokens[static_cast<size_t>(i)] = (i * 11 + seed * 5 + 3) % 120;
  return MakeRequest(std::move(tokens), Greedy());
}

std::unique_ptr<compute::StepRunner> MakeRunner(const TinyModel& model, int32_t threads) {
  compute::CpuExecutorOptions options = model.Options();
  options.threads = threads;
  auto runner = compute::StepRunner::Create(model.config, model.weights, options);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  return std::move(*runner);
}

// Logits of a prompt's every position.
std::map<int32_t, std::vector<float>> PromptLogits(const TinyModel& model) {
  auto runner = MakeRunner(model, 2);
  StepDriver driver(*runner, model.Options().num_blocks, model.Options().block_size, true);
  const int32_t s = driver.Add(SomeRequest(1));
  driver.Step({{s, kPrompt}}, true);
  return driver.at(s).logits;
}

struct Case {
  const char* name;
  const char* model;
  compute::NumericsOptions rows, packed;
  double bound;  // relative error of a row of logits, in the 2-norm; with f32 KV that of rounding inputs alone
};
class PackedSteps : public testing::TestWithParam<Case> {};

TEST_P(PackedSteps, AgreeWithTheReferencePassUpToRounding) {
  const TinyModel rows = LoadTiny(GetParam().model, GetParam().rows),
                  packed = LoadTiny(GetParam().model, GetParam().packed);
  ASSERT_EQ(rows.weights.packed, nullptr);
  ASSERT_NE(packed.weights.packed, nullptr);
  const auto want = PromptLogits(rows), got = PromptLogits(packed);
  ASSERT_EQ(got.size(), static_cast<size_t>(kPrompt));
  for (const auto& [position, logits] : want) {
    double error = 0, norm = 0;
    const std::vector<float>& others = got.at(position);
    for (size_t i = 0; i < logits.size(); ++i) {
      error += std::pow(double{logits[i]} - others[i], 2);
      norm += std::pow(double{logits[i]}, 2);
    }
    EXPECT_LT(std::sqrt(error / norm), GetParam().bound) << "position " << position;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, PackedSteps,
    testing::Values(
        Case{"q4_1_int16",
             "gguf-q4_1/model.gguf",
             {.dtype = "float32"},
             {.activation_dtype = "int16", .kv_cache_dtype = "float32"},
             3e-4},
        Case{"q4_1_mixed", "gguf-q4_1/model.gguf", {.dtype = "float32"}, {.kv_cache_dtype = "float32"}, 0.05},
        Case{"q8_0_int16",
             "gguf-q8_0/model.gguf",
             {.dtype = "float32"},
             {.activation_dtype = "int16", .kv_cache_dtype = "float32"},
             3e-4},
        Case{"q8_0_mixed", "gguf-q8_0/model.gguf", {.dtype = "float32"}, {.kv_cache_dtype = "float32"}, 0.05},
        Case{"q4_k_int16",
             "gguf-q4_k/model.gguf",
             {.dtype = "float32"},
             {.activation_dtype = "int16", .kv_cache_dtype = "float32"},
             3e-4},
        Case{"q4_k_mixed", "gguf-q4_k/model.gguf", {.dtype = "float32"}, {.kv_cache_dtype = "float32"}, 0.05},
        Case{"q6_k_int16",
             "gguf-q6_k/model.gguf",
             {.dtype = "float32"},
             {.activation_dtype = "int16", .kv_cache_dtype = "float32"},
             3e-4},
        Case{"q6_k_mixed", "gguf-q6_k/model.gguf", {.dtype = "float32"}, {.kv_cache_dtype = "float32"}, 0.05},
        Case{"q8_0_int8",
             "gguf-q8_0/model.gguf",
             {.dtype = "float32", .kv_cache_dtype = "bfloat16"},
             {.activation_dtype = "int8"},
             0.1},
        Case{"f32", "llama-gqa", {.dtype = "float32"}, {.kv_cache_dtype = "float32"}, 1e-5},
        Case{"f16", "llama-gqa-f16", {.dtype = "float32"}, {.kv_cache_dtype = "float32"}, 1e-5},
        Case{"bf16_f32",
             "llama-gqa-bf16",
             {.dtype = "float32"},
             {.activation_dtype = "float32", .kv_cache_dtype = "float32"},
             1e-5},
        Case{"mixed",
             "gguf-mixed/model.gguf",
             {.dtype = "float32"},
             {.activation_dtype = "float32", .kv_cache_dtype = "float32"},
             1e-5},
        Case{"bf16", "llama-gqa-bf16", {.dtype = "float32"}, {}, 0.05}),
    [](const auto& test) { return std::string(test.param.name); });

// One barrier per operator: round, qkv, rope and store, attention, round, out, round, gate and up, (round,) down per
// layer; around them embedding, round, logits, sampling. Operators too small to share have none.
TEST(PackedSteps, AStepHasAtMostTenBarriersALayer) {
  for (const char* name : {"llama-gqa-bf16", "gguf-q8_0/model.gguf"}) {
    const TinyModel model = LoadTiny(name);
    auto runner = MakeRunner(model, 2);
    StepDriver driver(*runner, model.Options().num_blocks, model.Options().block_size);
    std::vector<StepDriver::Take> decodes;
    for (int32_t i = 0; i < 8; ++i) {
      const int32_t s = driver.Add(SomeRequest(i));
      driver.Generate(s, 1);
      decodes.push_back({s, 1});
    }
    const int64_t before = runner->barriers();
    ASSERT_TRUE(driver.Step(decodes).status.ok());
    const int64_t barriers = runner->barriers() - before;
    EXPECT_GT(barriers, 0) << name;
    EXPECT_LE(barriers, 10 * model.config.num_layers() + 4) << name;
  }
}

// Every operator is counted with the bytes of its weights once per step, for any number of sequences.
TEST(PackedSteps, TheProfileCountsEveryWeightOnce) {
  const TinyModel model = LoadTiny("gguf-q8_0/model.gguf");
  auto runner = MakeRunner(model, 1);
  StepDriver driver(*runner, model.Options().num_blocks, model.Options().block_size);
  const int32_t a = driver.Add(SomeRequest(1)), b = driver.Add(SomeRequest(2));
  driver.Generate(a, 1);
  driver.Generate(b, 1);
  compute::OperatorProfile profile(SystemClock());
  runner->set_operator_profile(&profile);
  driver.Step({{a, 1}, {b, 1}});
  int64_t weights = 0;
  for (const compute::PackedLayerWeights& layer : model.weights.packed->layers)
    weights += layer[compute::Role::kGate].bytes() + layer[compute::Role::kUp].bytes();
  const auto& gated = profile.totals(compute::DecoderOperator::kGated);
  const int64_t layers = model.config.num_layers(), inner = test::FeedForwardIn(model.config).inner,
                hidden = model.config.hidden_size;
  EXPECT_EQ(gated.calls, layers);
  EXPECT_GT(gated.cost.bytes, weights);
  EXPECT_LT(gated.cost.bytes, weights + layers * 2 * 2 * 8 * (inner + hidden));
  // Two tokens, an eighth of their columns in 16 bits, by two matrices.
  EXPECT_EQ(gated.cost.operations, layers * 2 * 2 * 2 * (hidden + hidden / 8) * inner);
  EXPECT_EQ(profile.totals(compute::DecoderOperator::kLogits).calls, 1);
  EXPECT_EQ(profile.totals(compute::DecoderOperator::kAttention).calls, layers);
}

}  // namespace
}  // namespace tactus::test::packed_steps_test
