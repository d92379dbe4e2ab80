// The executor on a GPU: one thread launches plans, one waits for their results, so that the next step's work is in the
// stream before the tokens of the one before it reach the host. See base/executor.h for the contract.
#pragma once

#include <memory>

#include "base/executor.h"
#include "compute/cuda/device_weights.h"
#include "compute/cuda/step_launcher.h"

namespace tactus::compute::cuda {

// Allocates KV and activations. kResourceExhausted, with the size, when the device has too little memory.
Result<std::unique_ptr<Executor>> MakeCudaExecutor(const ModelConfig& config, DeviceWeights weights,
                                                   const CudaExecutorOptions& options);

}  // namespace tactus::compute::cuda
