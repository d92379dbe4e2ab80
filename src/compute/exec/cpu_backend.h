// The backend of a machine without a GPU: numerics and kernels by the options, weights mapped or packed, memory within
// what the cgroup and the machine leave, cpu_executor.h.
#pragma once

#include <memory>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/model/loader.h"
#include "tactus/options.h"

namespace tactus::compute {

// As MakeBackend (compute/exec/make_backend.h), which all code outside compute/exec calls.
Result<std::unique_ptr<Backend>> MakeCpuBackend(const EngineOptions& options, const ModelDescription& description,
                                                Clock& clock);

}  // namespace tactus::compute
