// f32 to the formats of converted files (`tactus models convert`): those of quantize.h and more. Q5_0 and Q5_1 are
// rounded to nearest as in their reference (gguf.quants). The K formats search for scales with a small squared error
// (encode_k.cc); the reference has no encoder for them. Pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/tensor/dtype.h"

namespace tactus::compute {

// True for the formats of CanQuantize (quantize.h), and for kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K.
bool CanEncode(DType dtype);

// out[RowBytes(dtype, elements)] = x[elements]. Preconditions: CanEncode(dtype), elements a multiple of the block, all
// values finite.
void Encode(DType dtype, const float* x, int64_t elements, std::byte* out);

// Symmetric integers of 4 or 8 bits: codes[i] * scale is near x[i]. Returns the scale, which bf16 holds and which is
// not negative; of 4 bits the one with the smallest squared error among 16. Precondition: all values finite.
float EncodeIntegers(int32_t bits, const float* x, int64_t elements, int8_t* codes);

// One block of 256 values.
void EncodeQ4K(const float* x, uint8_t* out);
void EncodeQ5K(const float* x, uint8_t* out);
void EncodeQ6K(const float* x, uint8_t* out);

}  // namespace tactus::compute
