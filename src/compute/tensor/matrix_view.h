// A weight matrix in memory: [rows, cols] = [out_features, in_features], cols contiguous. Owns nothing.
#pragma once

#include "compute/tensor/dtype.h"

namespace tactus::compute {

struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;  // RowBytes(dtype, cols) unless padded
};

}  // namespace tactus::compute
