// What surrounds the library's dense products (gemm.h): biases, and the scales of products in e4m3.
#pragma once

#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

// y[t, r] = bias[r], or += bias[r] where `adds`: y [tokens, rows] of y_type, rows y_stride values apart. A product that
// is then added to y has the bias with one rounding.
void SpreadBias(Stream& s, const float* bias, int64_t tokens, int64_t rows, void* y, Real y_type, int64_t y_stride,
                bool adds);

// Rows of x, [tokens, cols] of `type`, as codes in e4m3 with a scale each: scales[t] = max |x[t, :]| / 448, the largest
// number of e4m3, or 1 for a row of zeros; codes[t, c] = x[t, c] / scales[t].
void QuantizeToFp8(Stream& s, const void* x, Real type, int64_t tokens, int64_t cols, void* codes, float* scales);

// y[t, r] = x_scales[t] * w_scales[r] * sums[t, r] + bias[r], or += where `adds`.
struct ScaleCall {
  const float* sums = nullptr;  // [tokens, rows]
  int64_t tokens = 0, rows = 0;
  const float* x_scales = nullptr;  // [tokens]
  const float* w_scales = nullptr;  // [rows], or [1] where one_w_scale
  bool one_w_scale = false;
  const float* bias = nullptr;  // [rows]; null: none
  void* y = nullptr;            // [tokens, rows] of y_type, rows y_stride values apart
  Real y_type = Real::kBF16;
  int64_t y_stride = 0;
  bool adds = false;
};
void ScaleSums(Stream& s, const ScaleCall& call);

}  // namespace tactus::compute::cuda
