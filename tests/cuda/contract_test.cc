// The contract of executors over the CUDA executor on the emulated device.
#include <gtest/gtest.h>

#include <optional>

#include "base/check.h"
#include "compute/cuda/cuda_executor.h"
#include "contract/contract.h"
#include "cuda/cuda_runner.h"
#include "cuda/emulator/emulator.h"
#include "support/source_path.h"

namespace tactus::contract {
namespace {

using compute::cuda::KvType;
using compute::cuda::Real;

Backend CudaBackend(const std::string& name, const std::string& model_name, int32_t vocab_size, Real type,
                    KvType kv_type, bool overlap = false) {
  Backend backend;
  backend.name = name;
  backend.make = [=](const ExecutorSize& size, int32_t max_in_flight) -> Result<std::unique_ptr<Executor>> {
    TACTUS_ASSIGN_OR_RETURN(const auto description,
                            compute::DescribeModel(test::SourcePath("tests/golden/data/") + model_name));
    TACTUS_CHECK(description.config.vocab_size == vocab_size);
    TACTUS_ASSIGN_OR_RETURN(auto weights, test::LoadCudaWeights(description, {.type = type}));
    return compute::cuda::MakeCudaExecutor(
        description.config, std::move(weights),
        test::ExecutorOptionsOf({.type = type, .kv_type = kv_type, .max_in_flight = max_in_flight, .overlap = overlap},
                                size));
  };
  backend.vocab_size = vocab_size;
  backend.chains = backend.drafts = backend.logprobs = backend.grammars = backend.swaps = backend.moves = true;
  return backend;
}

[[maybe_unused]] const bool kFloat = Register(CudaBackend("CudaExecutor", "llama-gqa", 320, Real::kF32, KvType::kF32));
[[maybe_unused]] const bool kBfloat16 =
    Register(CudaBackend("CudaExecutorBf16", "llama-gqa-bf16", 128, Real::kBF16, KvType::kBF16));
[[maybe_unused]] const bool kIntegers =
    Register(CudaBackend("CudaExecutorInt8Kv", "llama-gqa-bf16", 128, Real::kBF16, KvType::kInt8));
[[maybe_unused]] const bool kOverlap =
    Register(CudaBackend("CudaExecutorOverlap", "llama-gqa-bf16", 128, Real::kBF16, KvType::kBF16, true));

// What the device finds fails the test in which it happens. Reads of KV that no step wrote do not: a block is copied
// whole, and the plans at the limits begin behind positions that were never computed.
class FindingsFail : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& /*test*/) override {
    for (const std::string& finding : compute::cuda::emulator::TakeFindings()) {
      const bool of_kv = finding.ends_with(": KV") && finding.find("read of never-written memory") != std::string::npos;
      if (!of_kv) ADD_FAILURE() << finding;
    }
  }
};
[[maybe_unused]] const bool kFindingsFail = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new FindingsFail);
  return true;
}();

}  // namespace
}  // namespace tactus::contract
