// The arithmetic that the engine's options select for a model on this machine, and how its weights are loaded.
#pragma once

#include <string>

#include "compute/exec/machine_choice.h"
#include "compute/exec/numerics.h"
#include "compute/kernels/ops.h"
#include "tactus/options.h"

namespace tactus::compute {

struct ModelNumerics {
  Numerics numerics;
  LoadWeightsOptions load;  // without `say`
  const Ops* ops = nullptr;
  int32_t threads = 1;
  std::string threads_why;  // ThreadChoice::why
  std::string hint;         // a better choice than the current one; empty: none
};

// kInvalidArgument: this machine cannot run the kernels.
Status CheckKernels(const EngineOptions& options);

// kInvalidArgument names the flag, its choices and a remedy.
Result<ModelNumerics> ChooseModelNumerics(const EngineOptions& options, const ModelDescription& description,
                                          Clock& clock);

}  // namespace tactus::compute
