// Shared by the kernel tests: seeded data, weight matrices of every format, workspaces.
#pragma once

#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/rng.h"
#include "compute/kernels/ops.h"
#include "compute/tensor/float16.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute::testing {

inline constexpr compute::DType kAllDTypes[] = {
    compute::DType::kF32,     compute::DType::kF16,     compute::DType::kBF16,    compute::DType::kQ4_0,
    compute::DType::kQ4_1,    compute::DType::kQ5_0,    compute::DType::kQ5_1,    compute::DType::kQ8_0,
    compute::DType::kQ4_K,    compute::DType::kQ5_K,    compute::DType::kQ6_K,    compute::DType::kQ2_K,
    compute::DType::kQ3_K,    compute::DType::kIQ4_NL,  compute::DType::kIQ4_XS,  compute::DType::kMXFP4,
    compute::DType::kNVFP4,   compute::DType::kIQ3_S,   compute::DType::kIQ3_XXS, compute::DType::kIQ2_S,
    compute::DType::kIQ2_XS,  compute::DType::kIQ2_XXS, compute::DType::kIQ1_M,   compute::DType::kIQ1_S,
    compute::DType::kTQ1_0,   compute::DType::kTQ2_0,   compute::DType::kQ1_0,    compute::DType::kI4_BF16,
    compute::DType::kI8_BF16, compute::DType::kU4_F16,  compute::DType::kU4_BF16, compute::DType::kI8_ROW};
static_assert(std::size(kAllDTypes) == static_cast<size_t>(compute::DType::kInt8),
              "a format of weights is missing here");

inline std::vector<float> RandomFloats(int64_t n, uint64_t seed, float deviation = 1.0f) {
  Rng rng(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) v = static_cast<float>(rng.Normal()) * deviation;
  return out;
}

// A matrix that owns its bytes, at an odd address, as is possible in a mapped file.
struct OwnedMatrix {
  std::vector<std::byte> bytes;
  compute::MatrixView view;
};

// Gives a block of random bytes plausible scales.
inline void SetScales(compute::DType dtype, Rng& rng, std::byte* block) {
  using compute::DType;
  const auto half = [&rng] { return compute::F32ToF16(static_cast<float>(rng.Uniform() * 0.01 + 1e-4)); };
  const int64_t bytes = compute::InfoOf(dtype).block_bytes;
  if (dtype == DType::kMXFP4) {  // an exponent: 2^-18 to 2^-3
    block[0] = static_cast<std::byte>(110 + rng.Next64() % 16);
    return;
  }
  if (dtype == DType::kNVFP4) return;  // finite whatever the bytes
  if (dtype == DType::kI4_BF16 || dtype == DType::kI8_BF16 || dtype == DType::kU4_BF16 || dtype == DType::kI8_ROW) {
    const auto d = static_cast<float>(rng.Uniform() * 0.01 + 1e-4);
    const uint16_t rounded = compute::F32ToBF16(d);
    dtype == DType::kI8_ROW ? std::memcpy(block, &d, sizeof d) : std::memcpy(block, &rounded, sizeof rounded);
  }
  if (dtype == DType::kU4_BF16 || dtype == DType::kU4_F16) block[2] &= std::byte{15};
  if (dtype == DType::kI4_BF16 || dtype == DType::kI8_BF16 || dtype == DType::kU4_BF16 || dtype == DType::kI8_ROW)
    return;
  if (dtype == DType::kIQ1_M) {
    const uint16_t d = half();
    for (int j = 0; j < 4; ++j) {
      std::byte& to = block[49 + 2 * j];
      to = (to & std::byte{0xf}) | static_cast<std::byte>(((d >> (4 * j)) & 0xf) << 4);
    }
    return;
  }
  const bool last = dtype == DType::kQ6_K || dtype == DType::kQ3_K || dtype == DType::kTQ1_0 || dtype == DType::kTQ2_0;
  const int64_t at = dtype == DType::kQ2_K ? bytes - 4 : last ? bytes - 2 : 0;
  const bool two = dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2_K || dtype == DType::kQ4_K ||
                   dtype == DType::kQ5_K;
  for (int64_t s = at; s < at + (two ? 4 : 2); s += 2) {
    const uint16_t d = half();
    std::memcpy(block + s, &d, sizeof d);
  }
}

// Random values where we can quantise, else random blocks with plausible scales.
inline OwnedMatrix RandomMatrix(compute::DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  OwnedMatrix m;
  const int64_t row_bytes = compute::RowBytes(dtype, cols);
  m.bytes.resize(static_cast<size_t>(rows * row_bytes + 1));
  std::byte* data = m.bytes.data() + 1;
  if (CanQuantize(dtype)) {
    const std::vector<float> x = RandomFloats(rows * cols, seed, 0.05f);
    for (int64_t r = 0; r < rows; ++r) Quantize(dtype, x.data() + r * cols, cols, data + r * row_bytes);
  } else {
    Rng rng(seed);
    for (int64_t i = 0; i < rows * row_bytes; ++i) data[i] = static_cast<std::byte>(rng.Next64());
    const int64_t block = compute::InfoOf(dtype).block_bytes;
    for (int64_t b = 0; b < rows * row_bytes; b += block) {
      const bool same = dtype == compute::DType::kI8_ROW && b % row_bytes != 0;  // one scale for the row
      if (same) {
        std::memcpy(data + b, data + b - block, 4);
      } else {
        SetScales(dtype, rng, data + b);
      }
    }
  }
  m.view = {data, dtype, rows, cols, row_bytes};
  return m;
}

struct OwnedWorkspace {
  OwnedWorkspace(int64_t tokens, int64_t cols, int32_t heads, int32_t head_dim, int32_t threads)
      : bytes(static_cast<size_t>(WorkspaceBytes(tokens, cols, heads, head_dim, threads))) {}
  Workspace view() { return {bytes.data(), static_cast<int64_t>(bytes.size())}; }
  std::vector<std::byte> bytes;
};

inline bool SameBits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}

}  // namespace tactus::compute::testing
