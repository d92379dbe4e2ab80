// What the engine's options mean for the weights of one model on this machine: the arithmetic, and how they are loaded
// for it.
#pragma once

#include <string>

#include "compute/exec/numerics.h"
#include "compute/kernels/ops.h"
#include "tactus/options.h"

namespace tactus::compute {

struct ModelNumerics {
  Numerics numerics;
  LoadWeightsOptions load;  // without `say`
  const Ops* ops = nullptr;
  int32_t threads = 1;
  std::string hint;  // a better choice than the one that stands; empty: none
};

// kInvalidArgument: kernels that this machine does not run.
Status CheckKernels(const EngineOptions& options);

// kInvalidArgument names the flag, its choices and the way out.
Result<ModelNumerics> ChooseModelNumerics(const EngineOptions& options, const ModelDescription& description);

}  // namespace tactus::compute
