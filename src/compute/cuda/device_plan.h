// How the device's memory is divided: weights, buffers of the largest step, KV for what is left.
#pragma once

#include "base/backend.h"
#include "compute/config/config.h"
#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

struct DevicePlanInput {
  int64_t free_bytes = 0;       // of the device, before anything is loaded
  int64_t host_free_bytes = 0;  // that this process may still use; negative: not known
  int64_t weight_bytes = 0;     // PlanDeviceWeightBytes
  int32_t multiprocessors = 1;
  Real type = Real::kBF16;
  KvType kv_type = KvType::kBF16;
  bool fp8_tokens = false;
  bool overlap = false;
  MemoryDemand demand;
};

// A pure function. kInvalidArgument: the arithmetic, and the flag to change. KV gets what --kv-cache-memory says, else
// nine tenths of what is left, but no more than every sequence at its full length needs. Swap space, rules of answers
// and requests outside the engine share the host's memory.
Result<MemoryGrant> PlanDeviceMemory(const ModelConfig& config, const DevicePlanInput& input);

}  // namespace tactus::compute::cuda
