// Which arithmetic a run uses: what --dtype and --kv-cache-dtype mean for a file of a given weight format. A pure function;
// docs/numerics.md has the table of what each choice costs in accuracy.
//
//   --dtype    weights in the file      linear operators                              KV
//   auto       bf16                     activations rounded to bf16, sums f32         bf16
//   auto       f16, f32, any quantised  weights exactly as stored, activations f32    bf16
//   bfloat16   any                      as auto for bf16 matrices: their input is     bf16
//                                       rounded to bf16; matrices of other formats
//                                       keep f32 activations
//   float32    any                      dequantised to f32 at load, everything f32    f32
//
// Norms, RoPE, softmax, residual stream and logits are f32 always.
#pragma once

#include <string_view>

#include "kernels/ops.h"
#include "tactus/status.h"

namespace tactus {

struct Numerics {
  bool dequantize_to_f32 = false;   // LoadWeightsOptions::dequantize_to_f32
  kernels::LinearMode linear_mode = kernels::LinearMode::kF32;
  DType kv_dtype = DType::kBF16;
};

// `dtype`: auto, float32 or bfloat16; `kv_cache_dtype`: auto, bfloat16 or float32; `weight_dtype`: of the bulk of the file's linear
// weights (ModelConfig::weight_dtype). kInvalidArgument names the flag and its choices.
Result<Numerics> ChooseNumerics(std::string_view dtype, std::string_view kv_cache_dtype, DType weight_dtype);

}  // namespace tactus
