// What tests of kernels over rows share: random values, and comparison with double references.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cuda/emulator/device_test.h"

namespace tactus::compute::cuda {

inline std::vector<float> Normals(int64_t n, uint64_t seed, double scale = 1.0) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = static_cast<float>(rng.Normal() * scale);
  return values;
}

template <class T>
constexpr Real RealOf() {
  return std::is_same_v<T, float> ? Real::kF32 : std::is_same_v<T, bf16> ? Real::kBF16 : Real::kF16;
}

// The relative error of a value of T: of f32 that of short sums and library functions, of others half a unit in the
// last place and some of f32's.
template <class T>
constexpr double ToleranceOf() {
  return std::is_same_v<T, float>  ? 1e-5
         : std::is_same_v<T, bf16> ? 0x1.01p-8
         : std::is_same_v<T, f16>  ? 0x1.1p-11
                                   : 0x1.02p-4;
}

template <class T>
void ExpectNear(const std::vector<T>& got, const std::vector<double>& expected, double absolute = 1e-9,
                double relative = ToleranceOf<T>()) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(ToFloat(got[i]));
    if (std::isnan(expected[i]) && std::isnan(value)) continue;
    ASSERT_NEAR(value, expected[i], std::abs(expected[i]) * relative + absolute) << "element " << i;
  }
}

// Calls f(T{}) for the types of activations.
template <class F>
void ForTypes(const F& f) {
  {
    SCOPED_TRACE("f32");
    f(float{});
  }
  {
    SCOPED_TRACE("bf16");
    f(bf16{});
  }
  {
    SCOPED_TRACE("f16");
    f(f16{});
  }
}

template <class T>
std::vector<T> Part(const std::vector<T>& all, int64_t first, int64_t n) {
  return std::vector<T>(all.begin() + first, all.begin() + first + n);
}

// Equal bytes: NaN equals itself, 0 is not -0.
template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace tactus::compute::cuda
