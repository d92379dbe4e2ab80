// Seeded random weights of any config, for tests and benchmarks without a download.
#pragma once

#include <memory>

#include "compute/weights/weight_builder.h"
#include "compute/weights/weight_storage.h"

namespace tactus::compute {

struct DummyWeights {
  uint64_t seed = 0;
  DType dtype = DType::kBF16;  // of matrices
};

// Near-normal with mean 0 and deviation 0.02 (matrices, biases), 1 (norms). A value is a pure function of seed, tensor
// name and index (Philox4x32-10), so the model is the same on every machine and in any loading order. Per element: the
// sum of four random bytes, centred and scaled (Irwin-Hall, within 3.5 deviations), which is cheap enough for billions.
// `dtype` is kBF16, kF32, kF16, kQ8_0, kQ4_0 or kQ4_1; anything else is kInvalidArgument. `rows_only`: matrices are
// generated on calls of Rows, on any thread, and never as a whole.
Result<std::unique_ptr<WeightSource>> MakeDummySource(const DummyWeights& dummy, bool rows_only);

}  // namespace tactus::compute
