// Scales of a quantised weight: numbers of a tensor, and the blocks of the weight that each covers. Any thread.
#pragma once

#include "compute/weights/quant/quant_method.h"

namespace tactus::compute {

// The numbers of a tensor of f32, f16, bf16 or f8_e4m3.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(const TensorEntry& tensor);
  float At(int64_t i) const;
  // The bits of an f16 or a bf16.
  uint16_t HalfAt(int64_t i) const;
  DType dtype() const { return dtype_; }

 private:
  const uint8_t* data_ = nullptr;
  DType dtype_ = DType::kF32;
  bool e4m3_ = false;
};

// A number for each block of rows_each x cols_each elements of a matrix.
struct NumberGrid {
  Numbers numbers;
  int64_t rows_each = 1, cols_each = 1;
  int64_t per_row = 1;  // numbers for a row of blocks

  int64_t IndexOf(int64_t row, int64_t col) const { return row / rows_each * per_row + col / cols_each; }
  float At(int64_t row, int64_t col) const { return numbers.At(IndexOf(row, col)); }
};

struct BlockSize {
  int64_t rows = 0, cols = 0;  // 0: none are stated
};

// The scales of a matrix [rows, cols] in the module's tensor `suffix`: one for the tensor, for each row, for equal
// groups of a row's columns, or for each stated block.
Result<NumberGrid> GridOf(ModuleTensors& tensors, std::string_view suffix, int64_t rows, int64_t cols, BlockSize block);

}  // namespace tactus::compute
