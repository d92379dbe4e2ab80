// Whole steps with FlashInfer's attention on the emulated device, from the executor's plan to logits: what their lists
// say, that no graph changes a bit, and that the backend takes the option. FlashInfer's own kernels do not run here.
#include <gtest/gtest.h>

#include <filesystem>

#include "compute/cuda/cuda_backend.h"
#include "cuda/cuda_runner.h"
#include "cuda/emulator/emulator.h"
#include "golden/golden_case.h"
#include "support/result_waiter.h"
#include "support/schedules.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

using compute::cuda::AttentionBackend;
using compute::cuda::KvType;
using compute::cuda::Real;

CudaModelOptions FlashInferModel(Real type, bool batch_invariant) {
  return {.type = type,
          .kv_type = type == Real::kBF16 ? KvType::kBF16 : KvType::kF16,
          .batch_invariant = batch_invariant,
          .attention = AttentionBackend::kFlashInfer};
}

compute::ModelDescription FlashInferDescription(const std::string& model) {
  auto description = compute::DescribeModel(SourcePath("tests/golden/data/") + model);
  TACTUS_CHECK_MSG(description.ok(), description.status().ToString());
  return std::move(description).value();
}

class FlashInferSteps : public testing::Test {
 protected:
  void SetUp() override { compute::cuda::emulator::TakeFindings(); }
  void TearDown() override {
    for (const std::string& finding : compute::cuda::emulator::TakeFindings()) ADD_FAILURE() << finding;
  }
};

// f16, whose rounding is eight times finer than bf16's, with the limits of golden_test.cc.
TEST_F(FlashInferSteps, AgreeWithTransformers) {
  for (const char* model : {"llama-gqa-bf16", "llama-mha", "qwen3", "olmoe"}) {
    for (const bool batch_invariant : {true, false}) {
      SCOPED_TRACE(std::string(model) + (batch_invariant ? "" : " without batch invariance"));
      const auto description = FlashInferDescription(model);
      const auto cases = ReadGoldenCases(SourcePath(std::string("tests/golden/data/") + model + "/golden.json"));
      ASSERT_TRUE(cases.ok()) << cases.status().ToString();
      for (const GoldenCase& golden : *cases) {
        const ExecutorSize size = GoldenSize(description.config, golden);
        auto runner = CudaRunner::Create(description, FlashInferModel(Real::kF16, batch_invariant), size);
        ASSERT_TRUE(runner.ok()) << runner.status().ToString();
        StepDriver driver(**runner, size.num_blocks, size.block_size, true);
        const auto run = DriveGoldenCase(description.config, golden, driver);
        ASSERT_TRUE(run.ok()) << run.status().ToString();
        EXPECT_LE(run->logits_error, 0.05);
        EXPECT_LE(run->median_error, 0.02);
      }
    }
  }
}

struct FlashInferRun {
  std::vector<StepDriver::Sequence> sequences;
  int64_t graph_runs = 0, recorded = 0;
};

FlashInferRun RunScheduled(const CudaModelOptions& options, Schedule schedule, int32_t block_size) {
  const auto description = FlashInferDescription("llama-gqa-bf16");
  const ExecutorSize size = ScheduleSize(block_size);
  const auto runner = CudaRunner::Create(description, options, size);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  StepDriver driver(**runner, size.num_blocks, block_size, true);
  FlashInferRun run;
  run.sequences = RunSchedule(driver, description.config.vocab_size, schedule, block_size, 3);
  run.graph_runs = (*runner)->launcher().graphs().runs();
  return run;
}

TEST_F(FlashInferSteps, WithBatchInvarianceSchedulingChangesNoBit) {
  const CudaModelOptions options = FlashInferModel(Real::kBF16, true);
  const FlashInferRun alone = RunScheduled(options, Schedule::kAlone, 16);
  EXPECT_GT(alone.graph_runs, 0) << "no decode ran as a graph";
  for (const auto& [schedule, block_size] : {std::pair{Schedule::kChunks, 16},
                                             {Schedule::kMixed, 4},
                                             {Schedule::kPreempted, 7},
                                             {Schedule::kShared, 8},
                                             {Schedule::kSharedInOneStep, 8}}) {
    SCOPED_TRACE("schedule " + std::to_string(static_cast<int>(schedule)));
    ExpectSameBits(alone.sequences, RunScheduled(options, schedule, block_size).sequences);
    if (HasFatalFailure()) return;
  }
}

// Decodes of sequences, the last one in the first steps alone.
FlashInferRun RunDecodes(const std::vector<int32_t>& prompts, bool batch_invariant, bool graphs) {
  CudaModelOptions options = FlashInferModel(Real::kBF16, batch_invariant);
  options.graphs = graphs;
  const auto description = FlashInferDescription("llama-gqa-bf16");
  ExecutorSize size;
  size.num_blocks = 200;
  size.max_slots = size.max_step_items = 4;
  size.max_step_tokens = 700;
  size.max_model_len = 1024;
  const auto runner = CudaRunner::Create(description, options, size);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  StepDriver driver(**runner, size.num_blocks, size.block_size, true);
  SamplingParams sampling;
  sampling.temperature = 0;
  for (const int32_t tokens : prompts) {
    std::vector<TokenId> prompt;
    for (int32_t i = 0; i < tokens; ++i) prompt.push_back((tokens + i * 13) % 128);
    const int32_t sequence = driver.Add(MakeRequest(std::move(prompt), sampling));
    TACTUS_CHECK(driver.Step({{sequence, tokens, {}}}).status.ok());
  }
  for (int32_t step = 0; step < 9; ++step) {
    std::vector<StepDriver::Take> takes;
    const auto sequences = static_cast<int32_t>(prompts.size());
    for (int32_t s = 0; s < (step < 5 ? sequences : std::max(1, sequences - 1)); ++s) takes.push_back({s, 1, {}});
    TACTUS_CHECK(driver.Step(takes).status.ok());
  }
  FlashInferRun run;
  for (size_t s = 0; s < prompts.size(); ++s) run.sequences.push_back(driver.at(static_cast<int32_t>(s)));
  run.graph_runs = (*runner)->launcher().graphs().runs();
  run.recorded = (*runner)->launcher().graphs().recorded();
  return run;
}

TEST_F(FlashInferSteps, GraphsChangeNoBit) {
  const std::vector<int32_t> split = {610, 15, 300}, grows = {509};  // to 33 pages, a list of another length
  for (const auto& [prompts, batch_invariant] :
       {std::pair{split, true}, {split, false}, {grows, true}, {grows, false}}) {
    const FlashInferRun without = RunDecodes(prompts, batch_invariant, false);
    const FlashInferRun with = RunDecodes(prompts, batch_invariant, true);
    EXPECT_EQ(without.graph_runs, 0);
    EXPECT_GT(with.graph_runs, with.recorded) << "no graph has served two steps";
    for (size_t s = 0; s < with.sequences.size(); ++s) {
      EXPECT_EQ(with.sequences[s].tokens, without.sequences[s].tokens) << "sequence " << s;
      EXPECT_EQ(with.sequences[s].logits, without.sequences[s].logits) << "sequence " << s;
    }
  }
}

TEST_F(FlashInferSteps, LogitsAreThoseOfOurAttentionWithinRounding) {
  const CudaModelOptions flashinfer = FlashInferModel(Real::kF16, false);
  CudaModelOptions ours = flashinfer;
  ours.attention = AttentionBackend::kTactus;
  const auto expected = RunScheduled(ours, Schedule::kMixed, 4).sequences;
  const auto computed = RunScheduled(flashinfer, Schedule::kMixed, 4).sequences;
  int64_t compared = 0;
  for (size_t s = 0; s < expected.size(); ++s) {
    const auto prompt = static_cast<size_t>(expected[s].prompt_size());  // later tokens may differ by rounding
    for (const auto& [position, logits] : expected[s].logits) {
      const auto at = computed[s].logits.find(position);
      if (position >= static_cast<int32_t>(prompt) || at == computed[s].logits.end()) continue;
      ++compared;
      for (size_t t = 0; t < logits.size(); ++t) {
        ASSERT_NEAR(at->second[t], logits[t], 0.02) << "sequence " << s << ", position " << position;
      }
    }
  }
  EXPECT_GE(compared, 6);
}

Result<std::unique_ptr<Backend>> MakeFlashInferBackend(const EngineOptions& options) {
  return compute::cuda::MakeCudaBackend(options, FlashInferDescription("llama-gqa-bf16"), SystemClock());
}

TEST_F(FlashInferSteps, TheBackendRefusesAModelByTheOptionsName) {
  EngineOptions options;
  EXPECT_TRUE(MakeFlashInferBackend(options).ok());
  options.attention_backend = "flashinfer";
  const auto refused = MakeFlashInferBackend(options);
  ASSERT_FALSE(refused.ok()) << "heads of 8 values are not FlashInfer's";
  EXPECT_EQ(refused.status().param(), "attention-backend");
  EXPECT_NE(refused.status().message().find("heads of 8 values"), std::string::npos) << refused.status().message();
}

// A model that FlashInfer serves: the tiny one with heads of 64 values and dummy weights.
TEST_F(FlashInferSteps, TheOptionReachesTheExecutor) {
  EngineOptions options;
  options.load_format = "dummy";
  auto description = FlashInferDescription("llama-gqa-bf16");
  for (compute::Layer& layer : description.config.layers) {
    for (compute::LayerBlock& b : layer) {
      if (auto* a = std::get_if<compute::AttentionBlock>(&b.block)) a->head_dim = 64;
    }
  }
  std::string arithmetic[2];
  for (const bool flashinfer : {false, true}) {
    options.attention_backend = flashinfer ? "flashinfer" : "tactus";
    auto backend = compute::cuda::MakeCudaBackend(options, description, SystemClock());
    ASSERT_TRUE(backend.ok()) << backend.status().ToString();
    arithmetic[flashinfer ? 1 : 0] = (*backend)->Info().arithmetic;
    const auto loaded = (*backend)->LoadWeights({});
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    ExecutorSize size;
    size.num_blocks = 16;
    size.max_model_len = 128;
    size.max_slots = size.max_step_items = 2;
    size.max_step_tokens = 64;
    auto executor = (*backend)->CreateExecutor(size);
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    compute::cuda::emulator::FailLaunchAfter(0, Internal("planned"), "FlashInfer");
    ResultWaiter waiter(**executor);
    StepDriver driver(
        [&](const StepPlan& plan, StepResult* result) {
          (*executor)->Submit(plan);
          *result = waiter.Next();
        },
        size.num_blocks, size.block_size);
    SamplingParams sampling;
    sampling.temperature = 0;
    const int32_t sequence = driver.Add(MakeRequest(std::vector<TokenId>(20, 5), sampling));
    const Status status = driver.Step({{sequence, 20, {}}}).status;
    EXPECT_EQ(status.message(), flashinfer ? "planned" : "") << "the launch that fails is FlashInfer's";
    executor->reset();
    compute::cuda::emulator::ResetDevice();
  }
  EXPECT_NE(arithmetic[0], arithmetic[1]) << "stored KV and step times would be shared";
}

}  // namespace
}  // namespace tactus::test
