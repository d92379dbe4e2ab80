// The contract over the CPU's executor: f32 weights on one thread, and integers with int8 KV on two.
#include "compute/exec/cpu_executor.h"

#include <optional>

#include "base/check.h"
#include "compute/exec/tiny_model.h"
#include "contract/contract.h"

namespace tactus::contract {
namespace {

constexpr int32_t kVocabSize = 320;  // of llama-gqa

Backend CpuBackend(const std::string& name, const compute::NumericsOptions& numerics, int32_t threads) {
  Backend backend;
  backend.name = name;
  const auto loaded = std::make_shared<std::optional<test::TinyModel>>();  // by the first check
  backend.make = [=](const ExecutorSize& size, int32_t max_in_flight) {
    if (!loaded->has_value()) *loaded = test::LoadTiny("llama-gqa", numerics);
    const test::TinyModel& model = **loaded;
    TACTUS_CHECK(model.config.vocab_size == kVocabSize);
    compute::CpuExecutorOptions options = model.Options();
    options.threads = threads;
    options.num_blocks = size.num_blocks;
    options.swap_blocks = size.swap_blocks;
    options.block_size = size.block_size;
    options.max_model_len = size.max_model_len;
    options.max_slots = size.max_slots;
    options.max_step_tokens = size.max_step_tokens;
    options.max_step_items = size.max_step_items;
    options.max_in_flight = max_in_flight;
    return compute::MakeCpuExecutor(model.config, model.weights, options);
  };
  backend.vocab_size = kVocabSize;
  backend.chains = backend.drafts = backend.logprobs = backend.grammars = backend.swaps = backend.moves = true;
  return backend;
}

[[maybe_unused]] const bool kFloat = Register(CpuBackend("CpuExecutor", {}, 1));
[[maybe_unused]] const bool kIntegers = Register(
    CpuBackend("CpuExecutorInt8", {.activation_dtype = "int8", .quantization = "int8", .kv_cache_dtype = "int8"}, 2));

}  // namespace
}  // namespace tactus::contract
