// Dense products by a library: y = x w^T. On a device cuBLASLt, loaded when it is first needed (gemm_cublaslt.cc); in
// tests plain loops (tests/cuda/emulator/). With batch invariance one algorithm serves every number of tokens of a
// matrix's shape, so a token's sums do not depend on the batch.
#pragma once

#include <memory>

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

struct GemmCall {
  const void* x = nullptr;  // [tokens, cols] of `type`
  const void* w = nullptr;  // [rows, cols] of `type`, or e4m3 with scales
  Real type = Real::kBF16;
  int64_t tokens = 0, rows = 0, cols = 0;
  const float* bias = nullptr;  // [rows]; null: none
  void* y = nullptr;            // [tokens, rows] of y_type, rows y_stride values apart
  Real y_type = Real::kBF16;
  int64_t y_stride = 0;
  bool adds = false;  // y += ..., y_type is kF32
};

class Gemm {
 public:
  // kUnavailable: the library is not there or too old, with the paths that were tried. `batch_invariant`: see above.
  static Result<std::unique_ptr<Gemm>> Create(bool batch_invariant);
  virtual ~Gemm() = default;
  // Chooses algorithms and allocates scratch for products of this shape, so that Multiply allocates nothing.
  virtual Status Prepare(int64_t rows, int64_t cols, int64_t max_tokens, Real type, Real y_type) = 0;
  virtual void Multiply(Stream& s, const GemmCall& call) = 0;
};

}  // namespace tactus::compute::cuda
