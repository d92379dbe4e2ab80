// The contract over the CPU's executor: f32 weights on two threads, bf16 weights on one, and integers with int8 KV on
// two.
#include "compute/exec/cpu_executor.h"

#include <optional>

#include "base/check.h"
#include "compute/exec/tiny_model.h"
#include "contract/contract.h"

namespace tactus::contract {
namespace {

Backend CpuBackend(const std::string& name, const std::string& model_name, int32_t vocab_size,
                   const compute::NumericsOptions& numerics, int32_t threads) {
  Backend backend;
  backend.name = name;
  const auto loaded = std::make_shared<std::optional<test::TinyModel>>();  // loaded by the first check
  backend.make = [=](const ExecutorSize& size, int32_t max_in_flight) {
    if (!loaded->has_value()) *loaded = test::LoadTiny(model_name, numerics);
    const test::TinyModel& model = **loaded;
    TACTUS_CHECK(model.config.vocab_size == vocab_size);
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
  backend.vocab_size = vocab_size;
  backend.chains = backend.drafts = backend.logprobs = backend.grammars = backend.swaps = backend.moves = true;
  return backend;
}

[[maybe_unused]] const bool kFloat = Register(CpuBackend("CpuExecutor", "llama-gqa", 320, {}, 2));
[[maybe_unused]] const bool kBfloat16 = Register(CpuBackend("CpuExecutorBf16", "llama-gqa-bf16", 128, {}, 1));
[[maybe_unused]] const bool kIntegers =
    Register(CpuBackend("CpuExecutorInt8", "llama-gqa", 320,
                        {.activation_dtype = "int8", .quantization = "int8", .kv_cache_dtype = "int8"}, 2));

}  // namespace
}  // namespace tactus::contract
