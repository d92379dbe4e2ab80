// The CPU backend: numerics and kernels by the options, weights mapped or packed, memory within the limits of the
// cgroup and the machine, and the executor of cpu_executor.h.
#pragma once

#include <memory>
#include <string>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/model/operator_profile.h"
#include "compute/weights/model_description.h"
#include "tactus/options.h"

namespace tactus::compute {

// As MakeBackend (compute/exec/make_backend.h), which code outside compute/exec uses. `hint`: the first part of its
// advice for better options. `profile`: CpuExecutorOptions::profile of its executor.
Result<std::unique_ptr<Backend>> MakeCpuBackend(const EngineOptions& options, const ModelDescription& description,
                                                Clock& clock, const std::string& hint = {},
                                                OperatorProfile* profile = nullptr);

}  // namespace tactus::compute
