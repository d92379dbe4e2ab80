// Executors over the fake model, as backends of the contract.
#pragma once

#include "contract/contract.h"
#include "support/fake_executor.h"

namespace tactus::contract {

// Offers everything that the contract has.
inline FakeExecutorConfig FakeConfig(const ExecutorSize& size, int32_t max_in_flight) {
  FakeExecutorConfig config;
  config.max_in_flight = max_in_flight;
  config.can_chain = true;
  config.max_draft_tokens = 12;
  config.num_blocks = size.num_blocks;
  config.swap_blocks = size.swap_blocks;
  config.block_size = size.block_size;
  config.max_slots = size.max_slots;
  config.max_step_tokens = size.max_step_tokens;
  config.max_step_items = size.max_step_items;
  config.max_model_len = static_cast<int32_t>(size.max_model_len);
  config.input_vocab_size = config.vocab_size;
  config.follows_specs = true;
  return config;
}

inline Backend FakeBackend() {
  return {.name = "FakeExecutor",
          .make = [](const ExecutorSize& size, int32_t max_in_flight) -> Result<std::unique_ptr<Executor>> {
            return std::unique_ptr<Executor>(std::make_unique<FakeExecutor>(FakeConfig(size, max_in_flight)));
          },
          .vocab_size = FakeExecutorConfig().vocab_size,
          .block_size = 8,
          .chains = true,
          .drafts = true,
          .logprobs = true,
          .grammars = true,
          .swaps = true,
          .moves = true};
}

}  // namespace tactus::contract
