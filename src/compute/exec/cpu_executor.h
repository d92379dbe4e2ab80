// The executor of a machine without a GPU: one leader thread that runs plans in order over a ThreadPool, paged KV in
// anonymous memory, sampling included. See exec/executor.h for the contract and compute/kernels/ops.h for batch
// invariance.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/executor.h"
#include "compute/config/config.h"
#include "compute/kernels/ops.h"
#include "compute/model/operator_profile.h"
#include "compute/weights/weights.h"

namespace tactus::compute {

inline constexpr int32_t kMaxDraftTokens = 64;  // of one item: beyond it a step would be a chunk of prompt

struct CpuExecutorOptions {
  int32_t threads = 0;       // 0: UsableCores()
  const Ops* ops = nullptr;  // null: the fastest
  DType kv_dtype = DType::kBF16;
  int64_t num_blocks = 0;
  int32_t block_size = 16;
  int64_t swap_blocks = 0;  // of a second arena, for sequences that are swapped out; 0: none
  int32_t max_slots = 0;
  int64_t max_step_tokens = 0;
  int32_t max_step_items = 0;
  int64_t max_model_len = 0;
  int32_t max_in_flight = 1;
  bool cascade_attention = true;  // a prefix that decodes of a step share is read once for all of them; changes no bit
  Clock* clock = nullptr;  // of StepResult's times and of waits between compute threads; needed, outlives the executor
  OperatorProfile* profile = nullptr;  // counts every step's operators; outlives the executor, read while none runs
};

// Allocates KV and activations (kResourceExhausted with the size when the system refuses).
Result<std::unique_ptr<Executor>> MakeCpuExecutor(const ModelConfig& config, ModelWeights weights,
                                                  const CpuExecutorOptions& options);

}  // namespace tactus::compute
