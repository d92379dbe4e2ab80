// Scales and minima of packed blocks as f32, written once over simd/simd.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed/packed.h"
#include "compute/kernels/simd/simd.h"

namespace tactus::compute {
namespace {

// Converts `count` f16 from `from`.
inline void WidenHalves(const std::byte* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += Simd::kWidth) Simd::Store(to + i, Simd::LoadF16(from + 2 * i));
}

inline void WidenBF16(const std::byte* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += Simd::kWidth) Simd::Store(to + i, Simd::LoadBF16(from + 2 * i));
}

// The scales (part 0) or minima (1) of `blocks` blocks of a token block. tail: the first block's; to: [blocks][64].
inline void LoadScales(const PackedMatrix& w, const std::byte* tail, int64_t blocks, int64_t part, float* to) {
  const int64_t each = w.block_bytes();
  if (!w.nested_scales) {
    tail += part * kPanelRows * 2;
    if (w.bf16_scales) {
      for (int64_t b = 0; b < blocks; ++b) WidenBF16(tail + b * each, kPanelRows, to + b * kPanelRows);
    } else {
      for (int64_t b = 0; b < blocks; ++b) WidenHalves(tail + b * each, kPanelRows, to + b * kPanelRows);
    }
    if (w.scale_unit == 1) return;
    for (int64_t i = 0; i < blocks * kPanelRows; ++i) to[i] *= w.scale_unit;
    return;
  }
  const int64_t parts = w.has_minimum ? 2 : 1, half = kPanelRows / 2;
  alignas(64) float outer[kPanelRows];
  WidenHalves(tail + 2 * part * each + parts * kPanelRows, half, outer);
  WidenHalves(tail + (2 * part + 1) * each + parts * kPanelRows, half, outer + half);
  for (float& scale : outer) scale *= w.scale_unit;
  tail += part * kPanelRows;
  for (int64_t b = 0; b < blocks; ++b, tail += each, to += kPanelRows) {
    const auto* inner = reinterpret_cast<const int8_t*>(tail);
    for (int64_t i = 0; i < kPanelRows; ++i) to[i] = outer[i] * static_cast<float>(inner[i]);
  }
}

}  // namespace
}  // namespace tactus::compute
