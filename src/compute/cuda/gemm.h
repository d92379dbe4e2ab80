// Dense products by a library: y = x w^T. On a device cuBLASLt, loaded when it is first needed (gemm_cublaslt.cc); in
// tests plain loops (tests/cuda/emulator/). With batch invariance one algorithm serves every number of tokens of a
// matrix's shape, so a token's sums do not depend on the batch.
#pragma once

#include <memory>

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

struct GemmCall {
  const void* x = nullptr;  // [tokens, cols] of `type`, rows one after another
  const void* w = nullptr;  // [rows, cols] of `type`
  Real type = Real::kBF16;
  int64_t tokens = 0, rows = 0, cols = 0;
  const float* bias = nullptr;  // [rows]; null: none
  void* y = nullptr;            // [tokens, rows] of y_type, rows y_stride values apart
  Real y_type = Real::kBF16;
  int64_t y_stride = 0;
  bool adds = false;  // y += ..., y_type is kF32
  // Not null: x and w are codes in e4m3 instead of `type`, value = scale * code (kernels/dense.h quantises x).
  const float* x_scales = nullptr;  // [tokens]
  const float* w_scales = nullptr;  // [rows], or [1] where one_w_scale
  bool one_w_scale = false;
};

// One stream at a time: products share scratch. Two streams need two objects.
class Gemm {
 public:
  // kUnavailable: the library is not there or too old, with the paths that were tried. `batch_invariant`: see above.
  static Result<std::unique_ptr<Gemm>> Create(bool batch_invariant);
  virtual ~Gemm() = default;
  // Chooses algorithms and allocates scratch for products of this shape, so that Multiply allocates nothing.
  // kUnimplemented: types that the library cannot combine. y_type is `type` or kF32.
  virtual Status Prepare(int64_t rows, int64_t cols, int64_t max_tokens, Real type, Real y_type) = 0;
  // The same for products of codes in e4m3; rows and cols are multiples of 16. kUnimplemented: a device before compute
  // capability 8.9.
  virtual Status PrepareFp8(int64_t /*rows*/, int64_t /*cols*/, int64_t /*max_tokens*/, Real /*y_type*/) {
    return Unimplemented("products of FP8 values");
  }
  virtual void Multiply(Stream& s, const GemmCall& call) = 0;
};

}  // namespace tactus::compute::cuda
