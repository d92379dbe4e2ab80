// The arithmetics that numerics_table compares, each as weights, kernels and modes for the executor.
#pragma once

#include <string>
#include <vector>

#include "exec/step_runner.h"
#include "model/loader.h"

namespace tactus::bench {

struct NumericsVariant {
  std::string name;
  ModelWeights weights;
  const kernels::Ops* ops = nullptr;
  kernels::LinearMode linear_mode = kernels::LinearMode::kF32;
  DType kv_dtype = DType::kBF16;
};

// The first is the f32 reference: dequantised weights, f32 everywhere.
Result<std::vector<NumericsVariant>> MakeVariants(const ModelDescription& description);

}  // namespace tactus::bench
