// Dense products by a library: y = x w^T. On a device cuBLASLt, loaded when it is first needed (gemm_cublaslt.cc); in
// tests plain loops (tests/cuda/emulator/). With batch invariance one algorithm serves every number of tokens of a
// matrix's shape, so a token's sums do not depend on the batch.
#pragma once

#include <memory>

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

// Scratch of all products of an object. 32 MiB is what NVIDIA recommends from compute capability 9.0.
inline constexpr int64_t kGemmScratchBytes = int64_t{32} << 20;

// The compute capability from which cards multiply codes in e4m3, 10 * major + minor.
inline constexpr int32_t kFp8Capability = 89;
// The scratch of these products, at most: sums in f32, which are scaled a piece at a time.
inline constexpr int64_t kFp8SumBytes = int64_t{64} << 20;

// Whether the library multiplies the matrix with tokens in e4m3. The limit is cuBLASLt's (NVIDIA, "cuBLAS",
// cublasLtMatmul, on FP8 kernels).
inline bool TakesFp8Tokens(const DeviceMatrix& w) {
  return w.format == MatrixFormat::kFp8 && w.rows % 16 == 0 && w.cols % 16 == 0;
}

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
  // The same for products of codes in e4m3, with outputs of any type. kUnimplemented: rows or cols that are no multiple
  // of 16, or a device before compute capability 8.9.
  virtual Status PrepareFp8(int64_t rows, int64_t cols, int64_t max_tokens) = 0;
  virtual void Multiply(Stream& s, const GemmCall& call) = 0;
};

}  // namespace tactus::compute::cuda
