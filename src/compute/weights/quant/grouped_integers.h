// Weights of small integers: (code - zero) * scale, with a scale and a zero point for each group of a row's columns.
// Any thread.
#pragma once

#include <optional>

#include "compute/weights/quant/number_grid.h"

namespace tactus::compute {

// Integers of 4 or 8 bits, several of which a word of 32 bits holds, the lowest bits first.
struct PackedIntegers {
  enum Order : uint8_t {
    kAcross,  // of successive columns of the tensor
    kAwq,     // likewise, but each eight in AutoAWQ's order
    kDown,    // of successive rows: a word of row i holds integers of row i * (32 / bits) and the next ones
  };
  const uint8_t* data = nullptr;
  int64_t line_bytes = 0;  // of a row of the tensor
  int32_t bits = 4;
  Order order = kAcross;
  uint8_t flip = 0;  // bits that are stored inverted: 0x80 for signed bytes

  int32_t per_word() const { return 32 / bits; }
  int32_t At(int64_t row, int64_t col) const;
};
PackedIntegers PackedOf(const TensorEntry& tensor, int32_t bits, PackedIntegers::Order order);

struct GroupedIntegers {
  int64_t rows = 0, cols = 0;
  int32_t bits = 4;
  int64_t group = 0;        // columns
  bool transposed = false;  // the file's tensors are [cols, rows] and [groups, rows]
  PackedIntegers codes;
  std::optional<PackedIntegers> zeros;
  int32_t zero = 0;  // added to `zeros`, or for all
  Numbers scales;    // [rows, groups], transposed, or one
  bool one_scale = false;
  const uint8_t* group_of = nullptr;  // the group of each column, 32 bits; null: col / group

  int64_t groups() const { return (cols + group - 1) / group; }
  int32_t ZeroAt(int64_t row, int64_t g) const;
};

// The number of columns under each of `count` groups; 0: they do not divide the columns.
int64_t GroupColumns(int64_t cols, int64_t count);

// Checks the values that choose an address or a code: zero points (of the tensor `zeros_suffix`) and, where there is
// one, the order of columns in `order_suffix`, which is dropped if it is the plain one. Zero points that are all the
// middle of the codes are dropped too.
Status CheckIntegers(const ModuleTensors& tensors, std::string_view zeros_suffix, std::string_view order_suffix,
                     GroupedIntegers* weight);

// The weight, in the format that holds its codes and scales exactly; in bf16 where there is none (RowFormat).
MadeWeight MakeIntegers(const TensorEntry& codes, const GroupedIntegers& weight);

// The block format of the rows: q4_0, q8_0, i4_bf16, i8_bf16, u4_f16, u4_bf16, i8_row. kBF16: scales of f32 for groups,
// groups that are no multiples of 32 columns, columns in another order, or 8 bits with zero points.
DType RowFormat(const GroupedIntegers& weight);

}  // namespace tactus::compute
