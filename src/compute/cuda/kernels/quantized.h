// Products with matrices of 8 and 4 bits, and of few tokens with any matrix. The dense products of many tokens are the
// library's (gemm.h).
//
// Layouts. kInt8: codes [rows, cols], one byte each. kInt4: codes [rows, cols / 2], the low half of a byte first.
// Scales and offsets [rows, cols / group]. MultiplyQuantized may ask for another order of the codes: Repack makes it,
// once, at load.
#pragma once

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

struct ProductCall {
  const void* x = nullptr;  // [tokens, cols] of `type`, rows one after another
  Real type = Real::kBF16;
  int64_t tokens = 0;
  DeviceMatrix w;
  const float* bias = nullptr;  // [rows]; null: none
  void* y = nullptr;            // [tokens, rows] of y_type, rows y_stride values apart
  Real y_type = Real::kBF16;    // kF32 where `adds`
  int64_t y_stride = 0;
  bool adds = false;  // y += ...; else y = ...
};
// Weights of 8 or 4 bits, any number of tokens, by tensor cores: codes become values of `type`, sums are f32 in an
// order that depends on cols alone. kF32 activations: plain loops, for tests.
void MultiplyQuantized(Stream& s, const ProductCall& call);
// At most kFewTokens tokens, any format: one warp per some rows of w, whose bytes are read once.
inline constexpr int64_t kFewTokens = 4;
void MultiplyFew(Stream& s, const ProductCall& call);

// Brings codes from the layouts above, in `from`, into the order that MultiplyQuantized and MultiplyFew read.
void Repack(Stream& s, const DeviceMatrix& from, void* to);

}  // namespace tactus::compute::cuda
