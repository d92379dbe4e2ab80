// The arithmetic of a run: the effect of --dtype, --activation-dtype, --quantization and --kv-cache-dtype on a file of
// a given weight format. A pure function. docs/concepts/numerics.md lists what each choice costs in accuracy,
// docs/reference/formats.md in time and memory.
//
//   weights (--quantization, else the file's)   --activation-dtype   linear operators
//   every quantised format                      auto, mixed          integer codes x 8 bits a token value, but 16 for
//                                                                    the largest neighbours (packed.h: wide groups)
//                                               int16                integer codes x 16 bits (two parts of int8)
//                                               int8                 integer codes x 8 bits, but for a few (PackChoice)
//   bf16; any under --dtype bfloat16            auto                 bf16 x bf16, f32 sums
//   any                                         bfloat16             weights rounded to bf16, bf16 x bf16, f32 sums
//   f16, f32                                    auto                 as stored, f32 x f32
//   any                                         float32              likewise
//   any under --dtype float32                   auto, float32        dequantised to f32 at load, everything f32,
//                                                                    KV too: the reference, by operators over rows
//
// Under --dtype bfloat16 quantised weights stay unchanged. Norms, RoPE, softmax, residual stream and logits are always
// f32.
#pragma once

#include <string>
#include <string_view>

#include "compute/model/loader.h"
#include "tactus/status.h"

namespace tactus::compute {

struct Numerics {
  // Format of the tokens that linear operators multiply, except the few operators where more than int8 is cheap
  // (PackChoice).
  enum class Tokens : uint8_t { kF32, kBF16, kMixed, kInt16, kInt8 };

  bool dequantize_to_f32 = false;  // LoadWeightsOptions::dequantize_to_f32: the reference; else weights are packed
  Tokens tokens = Tokens::kF32;
  DType kv_dtype = DType::kBF16;
  PackChoice packing;
};

// The options as typed; their words are in tactus/options.h. Empty is auto (none).
struct NumericsOptions {
  std::string_view dtype = "auto";
  std::string_view activation_dtype = "auto";
  std::string_view quantization = "none";
  std::string_view kv_cache_dtype = "auto";
};

// `weight_dtype`: of the bulk of the file's linear weights (ModelConfig::weight_dtype). kInvalidArgument names the
// flag, its choices and, where flags contradict each other or the file, a remedy.
Result<Numerics> ChooseNumerics(const NumericsOptions& options, DType weight_dtype);

// The options with auto in place of the words that GPUs alone have: float16, and fp8 for activations and KV.
NumericsOptions WithoutGpuWords(NumericsOptions options);

// The loader options that follow from the numerics.
LoadWeightsOptions LoadOptionsFor(const Numerics& numerics);

// For display: "int16 activations, KV bf16".
std::string NumericsText(const Numerics& numerics);

}  // namespace tactus::compute
