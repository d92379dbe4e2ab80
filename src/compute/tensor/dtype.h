// Element formats of weights, activations and KV. Block formats are GGUF's (ggml-common): a block of block_elements
// values along a row's contiguous dimension, bit-exact with the files, so that weights are used straight from the
// mapping. Five more block formats hold the integers of other files (compute/weights/quant/), whose rows are made of
// several tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tactus::compute {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,  // blocks of 32
  kQ4_K,
  kQ5_K,
  kQ6_K,  // blocks of 256
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kNVFP4,
  kIQ3_S,
  kIQ3_XXS,
  kIQ2_S,
  kIQ2_XS,
  kIQ2_XXS,
  kIQ1_M,
  kIQ1_S,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kI4_BF16,  // blocks of 32: q4_0 and q8_0 with scales of bf16
  kI8_BF16,
  kU4_F16,  // 4 bits less a zero point, a scale of f16 or bf16
  kU4_BF16,
  kI8_ROW,  // 8 bits, one f32 scale in all blocks of a row
  kInt8,    // codes alone, of a KV cache (scales: compute/kernels/attention/kv_layout.h)
};

struct DTypeInfo {
  const char* name;        // "q4_1"
  int32_t block_elements;  // 1 for the plain formats
  int32_t block_bytes;
};

const DTypeInfo& InfoOf(DType dtype);
// Bytes of one row of `elements`; precondition: elements is a multiple of block_elements.
int64_t RowBytes(DType dtype, int64_t elements);

}  // namespace tactus::compute
