// The formats of values on the device, for launching code that knows no CUDA type.
#pragma once

#include <cstdint>

namespace tactus::compute::cuda {

// The type of activations: inputs of products, and their outputs that are no sums of the residual stream.
// kF32 is the reference form (--dtype float32): products in f32, slow.
enum class Real : uint8_t { kF32, kBF16, kF16 };
inline int32_t SizeOf(Real type) {
  return type == Real::kF32 ? 4 : 2;
}

// The type of K and V in the cache. kInt8: a scale in f32 for each position and head. kFp8: e4m3 without a scale.
enum class KvType : uint8_t { kF32, kBF16, kF16, kInt8, kFp8 };
inline int32_t SizeOf(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kBF16 || type == KvType::kF16 ? 2 : 1;
}

// Whose attention runs (--attention-backend): ours (kernels/attention.h) or FlashInfer's (kernels/flashinfer.h).
enum class AttentionBackend : uint8_t { kTactus, kFlashInfer };

// A matrix on the device, [rows, cols] = [outputs, inputs].
enum class MatrixFormat : uint8_t {
  kReal,  // rows one after another, of type `real`
  kInt8,  // codes of 8 bits, signed: value = scale * code
  kInt4,  // codes of 4 bits: value = scale * code + offset (or scale * (code - 8) without offsets)
  kFp8,   // e4m3: value = scale * code, one scale per row or one for all
};
struct DeviceMatrix {
  MatrixFormat format = MatrixFormat::kReal;
  Real real = Real::kBF16;  // kReal's values; else the type of scales and offsets
  int64_t rows = 0, cols = 0;
  int32_t group = 0;              // values along cols that share a scale; 0: no scales
  const void* data = nullptr;     // layout of kInt8 and kInt4: kernels/quantized.h
  const void* scales = nullptr;   // kFp8: f32
  const void* offsets = nullptr;  // as scales; null: none
};

}  // namespace tactus::compute::cuda
