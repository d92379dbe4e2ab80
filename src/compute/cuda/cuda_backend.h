// The CUDA backend: one model on one GPU. Only library.cc makes it, which exec/device_library.h loads.
#pragma once

#include <memory>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/weights/model_description.h"
#include "tactus/options.h"

namespace tactus::compute::cuda {

// kInvalidArgument: an option that the backend does not have, with what it has. kUnavailable: no device.
Result<std::unique_ptr<Backend>> MakeCudaBackend(const EngineOptions& options, const ModelDescription& description,
                                                 Clock& clock);

}  // namespace tactus::compute::cuda
