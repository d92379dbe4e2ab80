// Which tensors a converted file has, and which rows of the model's tensors make them. One thread; afterwards constant.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compute/config/architecture.h"
#include "compute/weights/open_weights.h"

namespace tactus::compute {

// The order of the rows of q and k within a head.
enum class HeadOrder : uint8_t {
  kSame,
  kToPairs,   // from halves (dimension i turns with i + half) to neighbouring pairs, as GGUF's "llama" has them
  kToHalves,  // back
};

// A tensor of the model within one of the file.
struct TensorPart {
  TensorRequest from, to;
  MatrixView matrix;              // of matrices
  const float* vector = nullptr;  // of norms and biases
};

// Integers in place of a matrix's values, and a scale of bf16 for each group of a row's columns
// (compressed_tensors.h).
struct PlannedIntegers {
  int32_t bits = 0;     // 0: the values themselves
  bool packed = false;  // in words of 32 bits, the lowest first; else signed bytes
  int64_t group = 0;    // columns

  int64_t code_bytes(int64_t cols) const { return packed ? (cols * bits + 31) / 32 * 4 : cols; }
  int64_t scale_bytes(int64_t cols) const { return bits == 0 ? 0 : cols / group * 2; }
};

// A tensor of the file. Its rows are those of its parts.
struct PlannedTensor {
  static constexpr uint32_t kNoPart = UINT32_MAX;

  std::string name;
  DType dtype = DType::kF32;  // of integers: as which they are read
  PlannedIntegers integers;
  bool is_matrix = true;
  int64_t rows = 0, cols = 1;  // rows: of all experts
  int64_t stacked = 0;         // experts, one after another; 0: it is one tensor
  bool transposed = false;     // the file has the columns one after another (of each expert)
  std::vector<TensorPart> parts;
  std::vector<std::pair<uint32_t, uint32_t>> places;  // part and its row, of each row; empty: row for row of one part
  HeadOrder order = HeadOrder::kSame;
  int64_t head_dim = 0;
  float addend = 0.0f;   // of vectors, as is the next
  bool one_row = false;  // the file has it as a matrix

  // A row's values or integers, and the scales of integers.
  int64_t row_bytes() const { return integers.bits > 0 ? integers.code_bytes(cols) : RowBytes(dtype, cols); }
  int64_t scale_bytes() const { return integers.scale_bytes(cols); }
  int64_t bytes() const { return rows * (row_bytes() + scale_bytes()); }
  std::vector<int64_t> shape() const {
    std::vector<int64_t> shape = {rows};
    if (stacked > 0) shape = {stacked, rows / stacked};
    if (one_row) shape.insert(shape.begin(), 1);
    if (is_matrix) shape.insert(transposed ? shape.end() - 1 : shape.end(), cols);
    return shape;
  }
  // The part that has `row`, and the row of the model's tensor, in the order of the source's files. Null: none has it,
  // as the rows before OPT's first position; it is all zeros.
  std::pair<const TensorPart*, int64_t> Source(int64_t row) const;
};

// `format`: of the tensor whose first part this is. kUnimplemented: the names have no place for a tensor, or
// no order in which it can be written.
Result<std::vector<PlannedTensor>> PlanTensors(const ModelConfig& config, const OpenedWeights& opened,
                                               const Architecture& target, const TensorNames& names, HeadOrder order,
                                               const std::function<DType(const TensorPart&)>& format);

}  // namespace tactus::compute
