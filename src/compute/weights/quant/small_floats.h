// Weights of floats of 8 and 4 bits with scales. Any thread.
#pragma once

#include "compute/weights/quant/number_grid.h"

namespace tactus::compute {

// e4m3 times a scale, rounded once to f32; packed as bf16, because integer codes cannot hold e4m3's range. `codes` is
// [rows, cols].
MadeWeight MakeFp8(const TensorEntry& codes, const NumberGrid& scales);

// The module's tensors `.weight` (f8_e4m3) and `scale_suffix`.
Result<MadeWeight> MakeFp8Module(ModuleTensors& tensors, std::string_view scale_suffix, BlockSize block);

// NVFP4: e2m1, two columns to a byte, the first in the lower bits. A scale of e4m3 for each 16 columns, times a factor
// or divided by it, in f32; packed as bf16.
struct Nvfp4 {
  std::string_view codes, scales, factor;  // suffixes
  bool divides = false;                    // compressed-tensors stores the factor's inverse
};
Result<MadeWeight> MakeNvfp4(ModuleTensors& tensors, const Nvfp4& names);

// MXFP4: e2m1 as above. A power of two (e8m0) for each 32 columns. `codes` is [..., cols / 2] or [..., cols / 32, 16],
// the tensor of scales [..., cols / 32]. Rows are in GGUF's format, which is exact (its zeros have no sign).
Result<MadeWeight> MakeMxfp4(ModuleTensors& tensors, std::string_view codes_suffix, std::string_view scales_suffix);

}  // namespace tactus::compute
