// Batch invariance on the device: a sequence's logits have the same bits whatever shares its steps, however its prompt
// is cut, after a preemption and on shared prefix blocks. As tests/compute/exec/invariance_test.cc on a CPU.
#include <gtest/gtest.h>

#include "cuda/cuda_runner.h"
#include "cuda/emulator/emulator.h"
#include "support/schedules.h"
#include "support/source_path.h"

namespace tactus::test {
namespace {

using compute::cuda::KvType;
using compute::cuda::Real;

struct Case {
  const char* name;
  const char* model;
  CudaModelOptions options;
};

class CudaInvarianceTest : public testing::TestWithParam<Case> {
 protected:
  static std::vector<StepDriver::Sequence> Run(const CudaModelOptions& options, Schedule schedule, int32_t block_size,
                                               uint64_t seed) {
    const auto description = compute::DescribeModel(SourcePath("tests/golden/data/") + GetParam().model);
    TACTUS_CHECK_MSG(description.ok(), description.status().ToString());
    const ExecutorSize size = ScheduleSize(block_size);
    const auto runner = CudaRunner::Create(*description, options, size);
    TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
    StepDriver driver(**runner, size.num_blocks, block_size, true);
    return RunSchedule(driver, description->config.vocab_size, schedule, block_size, seed);
  }
  void SetUp() override { compute::cuda::emulator::TakeFindings(); }  // of other suites, which plant faults
  void TearDown() override {
    for (const std::string& finding : compute::cuda::emulator::TakeFindings()) ADD_FAILURE() << finding;
  }
};

TEST_P(CudaInvarianceTest, OtherSequencesAndSchedulingChangeNoBit) {
  const CudaModelOptions& options = GetParam().options;
  const auto alone = Run(options, Schedule::kAlone, 16, 1);
  for (const auto& [schedule, block_size] : {std::pair{Schedule::kChunks, 16},
                                             {Schedule::kMixed, 16},
                                             {Schedule::kMixed, 4},
                                             {Schedule::kPreempted, 7},
                                             {Schedule::kShared, 8},
                                             {Schedule::kSharedInOneStep, 8}}) {
    SCOPED_TRACE("schedule " + std::to_string(static_cast<int>(schedule)));
    ExpectSameBits(alone, Run(options, schedule, block_size, 2 + static_cast<uint64_t>(schedule)));
    if (HasFatalFailure()) return;
  }
}

TEST_P(CudaInvarianceTest, StepsInTwoPartsChangeNoBit) {
  CudaModelOptions options = GetParam().options;
  const auto alone = Run(options, Schedule::kAlone, 16, 1);
  options.overlap = true;
  for (const auto& [schedule, block_size] : {std::pair{Schedule::kAlone, 16},
                                             {Schedule::kChunks, 2},
                                             {Schedule::kMixed, 4},
                                             {Schedule::kShared, 8},
                                             {Schedule::kSharedInOneStep, 8}}) {
    SCOPED_TRACE("schedule " + std::to_string(static_cast<int>(schedule)));
    ExpectSameBits(alone, Run(options, schedule, block_size, 20 + static_cast<uint64_t>(schedule)));
    if (HasFatalFailure()) return;
  }
}

// On one multiprocessor of 8 as on four: an attention has few blocks then, which compute several units each. Contexts
// are shorter than a partition, so that the units themselves are the same.
TEST_P(CudaInvarianceTest, AttentionBesideProductsKeepsToItsMultiprocessors) {
  CudaModelOptions options = GetParam().options;
  // The others' heads have no form by tensor cores, and one multiprocessor holds all blocks of the plain form.
  if (GetParam().model != std::string("qwen3-moe")) return;
  options.overlap = true;
  const auto run = [&](double share, int64_t* blocks) {
    options.attention_share = share;
    const int64_t before = compute::cuda::emulator::CurrentCounts().blocks;
    auto sequences = Run(options, Schedule::kMixed, 4, 20);
    *blocks = compute::cuda::emulator::CurrentCounts().blocks - before;
    return sequences;
  };
  int64_t few = 0, many = 0;
  const auto on_four = run(0.5, &many);
  ExpectSameBits(on_four, run(0.01, &few));
  EXPECT_LT(few, many) << "the attention of a part is not capped";
}

constexpr CudaModelOptions kBf16{.type = Real::kBF16, .kv_type = KvType::kBF16};
// quantised_invariance_test.cc has more forms, of longer rows.
constexpr CudaModelOptions kInt8Weights{
    .type = Real::kBF16, .kv_type = KvType::kBF16, .packing = {.quantization = compute::Quantization::kInt8}};

INSTANTIATE_TEST_SUITE_P(Models, CudaInvarianceTest,
                         testing::Values(Case{"f32", "llama-gqa", {}}, Case{"bf16", "llama-gqa-bf16", kBf16},
                                         Case{"int8_kv", "llama-gqa-bf16", {Real::kBF16, KvType::kInt8}},
                                         Case{"experts", "qwen3-moe", kBf16},
                                         Case{"int8_weights", "llama-gqa-bf16", kInt8Weights},
                                         Case{"int8_by_16", "gguf-q6_k/model.gguf", kBf16},
                                         Case{"int4_with_offsets", "gguf-q4_k/model.gguf", kBf16},
                                         Case{"experts_in_codes", "gguf-experts-mixed/model.gguf", kBf16},
                                         Case{"experts_int8", "qwen2-moe", kInt8Weights}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tactus::test
