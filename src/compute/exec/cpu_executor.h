// The CPU executor: one leader thread that runs plans in order over a ThreadPool, with paged KV in anonymous memory and
// sampling. See base/executor.h for the contract and compute/kernels/ops.h for batch invariance.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/executor.h"
#include "compute/config/config.h"
#include "compute/kernels/ops.h"
#include "compute/model/operator_profile.h"
#include "compute/packing/packed_weights.h"

namespace tactus::compute {

struct CpuExecutorOptions {
  int32_t threads = 0;       // 0: UsableCores()
  const Ops* ops = nullptr;  // null: the fastest
  DType kv_dtype = DType::kBF16;
  int64_t num_blocks = 0;
  int32_t block_size = 16;
  int64_t swap_blocks = 0;  // in a second arena, for swapped-out sequences; 0: none
  int32_t max_slots = 0;
  int64_t max_step_tokens = 0;
  int32_t max_step_items = 0;
  int64_t max_model_len = 0;
  int32_t max_in_flight = 1;
  bool cascade_attention = true;  // reads a prefix shared by decodes of a step once for all of them; the bits do not
                                  // change
  Clock* clock = nullptr;  // for StepResult's times and waits between compute threads; required, outlives the executor
  OperatorProfile* profile = nullptr;  // counts every step's operators; outlives the executor; read only while no step
                                       // runs
};

// Allocates KV and activations. kResourceExhausted, with the size, when the system refuses.
Result<std::unique_ptr<Executor>> MakeCpuExecutor(const ModelConfig& config, CpuWeights weights,
                                                  const CpuExecutorOptions& options);

}  // namespace tactus::compute
