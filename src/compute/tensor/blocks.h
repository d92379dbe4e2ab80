// Blocks of GGUF's formats taken apart into small integers and their scales. Dequantising multiplies them; packing
// (compute/kernels/packed/pack_panels.cc) stores them as they are. The formats that both have taken apart for longer
// (q4_0 to q8_0, q4_K to q6_K) have code of their own there, which is faster.
#pragma once

#include <cstdint>

#include "compute/tensor/dtype.h"

namespace tactus::compute {

inline constexpr int32_t kMostBlockColumns = 256, kLeastGroupColumns = 16;

// Column c of a block is scale * values[c] + minimum, each one f32 rounding. Its group is g = c / group (BlockFormat).
//   plain    scale is scales[g], without minimum
//   nested   scale is scales[0] * unit * factors[g], minimum is minimum * minimum_factors[g]
struct FormatBlock {
  static constexpr int32_t kGroups = kMostBlockColumns / kLeastGroupColumns;
  int8_t values[kMostBlockColumns];
  float scales[4];  // f16 numbers; of mxfp4 powers of two, which bf16 holds
  float minimum;    // an f16 number
  int8_t factors[kGroups];
  int8_t minimum_factors[kGroups];
};

struct BlockFormat {
  void (*read)(const uint8_t* bytes, FormatBlock* block) = nullptr;  // leaves what the format lacks unchanged
  int32_t group = 0;                                                 // columns under one scale
  bool nested = false, has_minimum = false;
  float unit = 1;  // a power of two: values and factors are integers in multiples of it
};

// Null: a format that is not taken apart.
const BlockFormat* BlockFormatOf(DType dtype);

// Readers of the formats with codebooks (codebook_blocks.cc); the others are in blocks.cc.
void ReadIq3Xxs(const uint8_t* bytes, FormatBlock* block);
void ReadIq3S(const uint8_t* bytes, FormatBlock* block);
void ReadIq2Xxs(const uint8_t* bytes, FormatBlock* block);
void ReadIq2Xs(const uint8_t* bytes, FormatBlock* block);
void ReadIq2S(const uint8_t* bytes, FormatBlock* block);
void ReadIq1S(const uint8_t* bytes, FormatBlock* block);
void ReadIq1M(const uint8_t* bytes, FormatBlock* block);

}  // namespace tactus::compute
