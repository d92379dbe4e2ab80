// Batch invariance with quantised weights: a sequence's logits have the same bits whatever shares its steps and however
// its prompt is cut. Rows have several slices of columns, and steps have as many tokens as make every kernel for up to
// 64 tokens run. The output matrix is quantised too: its sums are the logits, so no rounding to bf16 hides another
// order. invariance_test.cc has the forms of short rows and of experts.
#include <gtest/gtest.h>

#include "base/check.h"
#include "compute/cuda/gemm.h"
#include "compute/exec/quantised_folders.h"
#include "cuda/cuda_runner.h"
#include "cuda/emulator/emulator.h"
#include "support/step_driver.h"

namespace tactus::test::quantised_invariance_test {
namespace {

using compute::PackChoice;
using compute::Quantization;
using compute::cuda::KvType;
using compute::cuda::Real;

constexpr int32_t kPrompt = 70;

struct Case {
  const char* name;
  const char* format;  // of the files (quantised_folders.h)
  const char* form;    // begins the weights' format on the device
  CudaModelOptions options;
};

ExecutorSize SizeOfRun() {
  ExecutorSize size;
  size.block_size = 16;
  size.num_blocks = 40;
  size.max_slots = 5;
  size.max_step_items = 80;  // also the rows of logits that are one product
  size.max_step_tokens = 160;
  size.max_model_len = 128;
  return size;
}

class CudaQuantisedInvariance : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    compute::cuda::emulator::TakeFindings();  // of other suites, which plant faults
    compute::cuda::emulator::SetDeviceShape({.capability = compute::cuda::kFp8Capability});
    const auto device = compute::cuda::OpenDevice(0);
    TACTUS_CHECK_MSG(device.ok(), device.status().ToString());
    if (GetParam().options.fp8_tokens && device->capability < compute::cuda::kFp8Capability) {
      GTEST_SKIP() << device->name << " does not multiply codes in e4m3";
    }
    WriteQuantised(quantised::FormatNamed(GetParam().format), folder_,
                   {.hidden = 256, .positions = 128, .quantised_head = true});
  }
  void TearDown() override {
    for (const std::string& finding : compute::cuda::emulator::TakeFindings()) ADD_FAILURE() << finding;
    compute::cuda::emulator::SetDeviceShape({});
  }

  compute::ModelDescription Description() const {
    auto description = compute::DescribeModel(folder_.path());
    TACTUS_CHECK_MSG(description.ok(), description.status().ToString());
    return *description;
  }

  using Steps = std::vector<std::vector<StepDriver::Take>>;  // of sequences with successive prompts
  // The sequences after these steps, whose logits are all recorded.
  std::vector<StepDriver::Sequence> Run(const CudaModelOptions& options, int32_t sequences, const Steps& steps) const {
    const compute::ModelDescription description = Description();
    const ExecutorSize size = SizeOfRun();
    auto runner = CudaRunner::Create(description, options, size);
    TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
    StepDriver driver(**runner, size.num_blocks, size.block_size, true);
    for (int32_t s = 0; s < sequences; ++s) {
      std::vector<TokenId> prompt;
      for (int32_t i = 0; i < kPrompt; ++i) prompt.push_back((8 + s * 29 + i * 11) % quantised::kVocab);
      driver.Add(MakeRequest(std::move(prompt), Greedy()));
    }
    for (const std::vector<StepDriver::Take>& step : steps) {
      const StepResult result = driver.Step(step, true);
      TACTUS_CHECK_MSG(result.status.ok(), result.status.ToString());
    }
    std::vector<StepDriver::Sequence> result;
    for (int32_t s = 0; s < sequences; ++s) result.push_back(driver.at(s));
    return result;
  }

  // Every position of sequence 0.
  static void ExpectSameLogits(const std::vector<StepDriver::Sequence>& a, const std::vector<StepDriver::Sequence>& b) {
    ASSERT_EQ(b[0].computed, kPrompt);
    EXPECT_EQ(a[0].tokens, b[0].tokens);
    for (int32_t position = 0; position < kPrompt; ++position) {
      ASSERT_EQ(a[0].logits.at(position), b[0].logits.at(position)) << "position " << position;
    }
  }

  TempFolder folder_;
};

TEST_P(CudaQuantisedInvariance, ChunksAndOtherSequencesChangeNoBit) {
  const CudaModelOptions& options = GetParam().options;
  const auto weights = LoadCudaWeights(Description(), options);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  EXPECT_TRUE(weights->format.starts_with(GetParam().form)) << weights->format;

  const auto whole = Run(options, 1, {{{0, kPrompt, {}}}});
  // Steps of 1 to 5 tokens, then more than 8, 16, 32.
  Steps chunks;
  for (const int32_t count : {1, 2, 3, 4, 5, 9, 17, 29}) chunks.push_back({{0, count, {}}});
  {
    SCOPED_TRACE("in chunks");
    ExpectSameLogits(whole, Run(options, 1, chunks));
  }
  // A token beside 2, 6, 15, 30 and 70 of other sequences, then the others' tokens beside the rest.
  const Steps mixed = {{{1, 2, {}}, {0, 1, {}}},   {{0, 1, {}}, {2, 6, {}}},       {{1, 8, {}}, {0, 1, {}}, {2, 7, {}}},
                       {{2, 30, {}}, {0, 1, {}}},  {{3, kPrompt, {}}, {0, 1, {}}}, {{3, 1, {}}, {1, 3, {}}, {0, 5, {}}},
                       {{0, 40, {}}, {1, 40, {}}}, {{3, 1, {}}, {0, 20, {}}}};
  SCOPED_TRACE("beside others");
  ExpectSameLogits(whole, Run(options, 4, mixed));
  if (HasFatalFailure()) return;
  CudaModelOptions two_parts = options;
  two_parts.overlap = true;
  SCOPED_TRACE("in two parts");
  ExpectSameLogits(whole, Run(two_parts, 4, mixed));
}

constexpr CudaModelOptions kBf16{.type = Real::kBF16, .kv_type = KvType::kBF16};
constexpr CudaModelOptions With(Quantization quantization) {
  CudaModelOptions options = kBf16;
  options.packing.quantization = quantization;
  return options;
}
constexpr CudaModelOptions WithFp8Tokens(Real type, KvType kv_type) {
  return {.type = type, .kv_type = kv_type, .fp8_tokens = true};
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CudaQuantisedInvariance,
    testing::Values(Case{"int8_by_32", "gptq_8", "int8 by 32", kBf16},
                    Case{"int8_by_row", "compressed_w8a8", "int8 by row", kBf16},
                    Case{"int8_at_load", "fp8_blocks", "int8 by row", With(Quantization::kInt8)},
                    Case{"int4_by_64", "gptq_4", "int4 by 64", kBf16},
                    Case{"int4_with_offsets", "awq", "int4 by 128", kBf16},
                    Case{"int4_at_load", "fp8_blocks", "int4 by 64", With(Quantization::kInt4)},
                    Case{"fp8_weights", "compressed_fp8", "fp8", kBf16},
                    Case{"fp8_tokens", "compressed_fp8", "fp8", WithFp8Tokens(Real::kBF16, KvType::kBF16)},
                    Case{"fp8_tokens_f16", "compressed_fp8", "fp8", WithFp8Tokens(Real::kF16, KvType::kFp8)}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tactus::test::quantised_invariance_test
