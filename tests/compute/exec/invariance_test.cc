// Batch invariance at the executor: a sequence's logits have the same bits, and its tokens are equal, whatever shares
// its steps, however its prompt is cut, after a preemption, on shared prefix blocks, with any number of threads and any
// block size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "compute/exec/tiny_model.h"
#include "support/schedules.h"

namespace tactus::test::invariance_test {
namespace {

// A setting of a schedule and of the executor.
struct Setting {
  Schedule schedule = Schedule::kAlone;
  int32_t threads = 1;
  int32_t block_size = 16;
  uint64_t seed = 1;
};

std::vector<StepDriver::Sequence> RunSetting(const TinyModel& model, const compute::Ops* ops, const Setting& setting) {
  compute::CpuExecutorOptions options = model.Options();
  options.ops = ops;
  options.threads = setting.threads;
  options.block_size = setting.block_size;
  options.num_blocks = kScheduleTokens / setting.block_size;
  auto runner = compute::StepRunner::Create(model.config, model.weights, options);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  StepDriver driver(**runner, options.num_blocks, options.block_size, true);
  return RunSchedule(driver, model.config.vocab_size, setting.schedule, setting.block_size, setting.seed);
}

// The models of tests/golden/data from safetensors.
std::vector<std::string> GoldenModels() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(test::SourcePath("tests/golden/data"), error)) {
    const std::string name = entry.path().filename();
    if (!std::filesystem::exists(entry.path() / "golden.json") || name.starts_with("gguf-")) continue;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Case {
  const char* name;
  const char* model;
  compute::NumericsOptions numerics;
};
class InvarianceTest : public testing::TestWithParam<Case> {};

TEST_P(InvarianceTest, OtherSequencesAndSchedulingChangeNoBit) {
  const TinyModel model = LoadTiny(GetParam().model, GetParam().numerics);
  for (const compute::Ops* ops : compute::RunnableOps()) {
    SCOPED_TRACE(std::string("kernels ") + ops->name);
    const auto alone = RunSetting(model, ops, {});
    const Setting settings[] = {
        {Schedule::kChunks, 1, 16, 2},          {Schedule::kMixed, 1, 16, 3},     {Schedule::kMixed, 2, 16, 4},
        {Schedule::kMixed, 4, 16, 5},           {Schedule::kPreempted, 2, 16, 6}, {Schedule::kShared, 1, 16, 7},
        {Schedule::kSharedInOneStep, 2, 16, 8}, {Schedule::kAlone, 2, 1, 9},      {Schedule::kMixed, 2, 4, 10},
        {Schedule::kPreempted, 1, 7, 11},       {Schedule::kShared, 4, 8, 12},    {Schedule::kMixed, 1, 64, 13},
    };
    for (const Setting& setting : settings) {
      SCOPED_TRACE("setting with seed " + std::to_string(setting.seed));
      ExpectSameBits(alone, RunSetting(model, ops, setting));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, InvarianceTest,
    testing::Values(Case{"bf16", "llama-gqa-bf16", {}}, Case{"f32", "llama-gqa", {}}, Case{"f16", "llama-gqa-f16", {}},
                    Case{"f32_reference", "llama-gqa", {.dtype = "float32"}},
                    Case{"f32_activations", "gguf-q4_1/model.gguf", {.activation_dtype = "float32"}},
                    Case{"q4_1_int16", "gguf-q4_1/model.gguf", {}},
                    Case{"q4_1_int8", "gguf-q4_1/model.gguf", {.activation_dtype = "int8"}},
                    Case{"q8_0_int16", "gguf-q8_0/model.gguf", {}},
                    Case{"q8_0_int8", "gguf-q8_0/model.gguf", {.activation_dtype = "int8"}},
                    Case{"q4_k", "gguf-q4_k/model.gguf", {.activation_dtype = "int8"}},
                    Case{"mixed", "gguf-mixed/model.gguf", {}},
                    Case{"int8_at_load", "llama-bias", {.activation_dtype = "int8", .quantization = "int8"}},
                    Case{"int4_at_load", "llama-gqa", {.activation_dtype = "int8", .quantization = "int4"}},
                    Case{"int8_kv", "llama-gqa-bf16", {.kv_cache_dtype = "int8"}}, Case{"window", "mistral-window", {}},
                    Case{"qk_norm", "qwen3", {.quantization = "q8_0"}},
                    Case{"window_in_some_layers", "qwen2-window", {}}, Case{"experts_bf16", "qwen3-moe", {}},
                    Case{"experts_q8_0", "glm4-moe", {.quantization = "q8_0"}},
                    Case{"experts_int4", "qwen2-moe", {.quantization = "int4_nearest"}},
                    Case{"experts_reference", "gpt-oss", {.dtype = "float32"}}, Case{"shared_kv", "gemma4", {}},
                    Case{"shared_kv_int8", "gemma4", {.quantization = "q8_0", .kv_cache_dtype = "int8"}},
                    Case{"keys_are_values", "gemma4-12b", {}}, Case{"query_scale", "ministral3", {}},
                    Case{"norms_last", "hunyuan", {}}, Case{"chunks", "llama4", {}},
                    Case{"chunks_int8", "llama4", {.quantization = "q8_0", .kv_cache_dtype = "int8"}}),
    [](const auto& test) { return std::string(test.param.name); });

// Every golden model in its serving numerics, with chunks, preemption and shared prefixes.
class FamilyInvarianceTest : public testing::TestWithParam<std::string> {};

TEST_P(FamilyInvarianceTest, ChunksPreemptionAndSharedPrefixesChangeNoBit) {
  const TinyModel model = LoadTiny(GetParam(), compute::NumericsOptions{});
  for (const compute::Ops* ops : compute::RunnableOps()) {
    SCOPED_TRACE(std::string("kernels ") + ops->name);
    const auto alone = RunSetting(model, ops, {});
    for (const Setting& setting : {Setting{Schedule::kChunks, 1, 16, 2},
                                   {Schedule::kPreempted, 2, 16, 6},
                                   {Schedule::kSharedInOneStep, 2, 8, 8}}) {
      SCOPED_TRACE("setting with seed " + std::to_string(setting.seed));
      ExpectSameBits(alone, RunSetting(model, ops, setting));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, FamilyInvarianceTest, testing::ValuesIn(GoldenModels()), [](const auto& test) {
  std::string name = test.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace tactus::test::invariance_test
