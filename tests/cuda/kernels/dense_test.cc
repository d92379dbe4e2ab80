// Biases and scales around dense products, against sums in double precision.
#include "compute/cuda/kernels/dense.h"

#include <cmath>

#include "cuda/emulator/device_test.h"

namespace tactus::compute::cuda {
namespace {

std::vector<float> Values(int64_t n, uint32_t seed, float most = 2.0f) {
  std::vector<float> v(static_cast<size_t>(n));
  uint32_t state = seed * 747796405u + 1;
  for (float& x : v) {
    state = state * 1664525u + 1013904223u;
    x = most * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  return v;
}

template <class T>
Real RealOf() {
  return std::is_same_v<T, float> ? Real::kF32 : std::is_same_v<T, bf16> ? Real::kBF16 : Real::kF16;
}
// The relative error of one rounding.
template <class T>
double RoundingOf() {
  return std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-11;
}

class DenseTest : public DeviceTest {
 protected:
  // y has `stride` values a row; those beyond `rows` stay.
  template <class T>
  void CheckSpread(int64_t tokens, int64_t rows, int64_t stride, bool adds) {
    const std::vector<float> bias = Values(rows, 1);
    const std::vector<T> before = Rounded<T>(Values(tokens * stride, 2));
    const Buffer<float> b(bias);
    const Buffer<T> y(before);
    SpreadBias(stream(), b.data(), tokens, rows, y.data(), RealOf<T>(), stride, adds);
    const std::vector<float> old = Floats(before), got = Floats(y.Read());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < stride; ++r) {
        const auto at = static_cast<size_t>(t * stride + r);
        const double want = r >= rows ? old[at] : (adds ? double{old[at]} : 0.0) + bias[static_cast<size_t>(r)];
        ASSERT_NEAR(got[at], want, std::abs(want) * RoundingOf<T>() + 1e-7) << t << " " << r;
      }
    }
  }

  template <class T>
  void CheckQuantize(int64_t tokens, int64_t cols) {
    std::vector<float> values = Values(tokens * cols, 3);
    for (int64_t c = 0; c < cols; ++c) values[static_cast<size_t>(c)] = 0.0f;  // a row of zeros
    const Buffer<T> x(Rounded<T>(values));
    const Buffer<e4m3> codes(tokens * cols);
    const Buffer<float> scales(tokens);
    QuantizeToFp8(stream(), x.data(), RealOf<T>(), tokens, cols, codes.data(), scales.data());
    const std::vector<float> in = Floats(x.Read()), got = Floats(codes.Read()), scale = scales.Read();
    for (int64_t t = 0; t < tokens; ++t) {
      float most = 0;
      for (int64_t c = 0; c < cols; ++c) most = std::max(most, std::abs(in[static_cast<size_t>(t * cols + c)]));
      const float s = scale[static_cast<size_t>(t)];
      EXPECT_FLOAT_EQ(s, most > 0 ? most / 448.0f : 1.0f);
      for (int64_t c = 0; c < cols; ++c) {
        const auto at = static_cast<size_t>(t * cols + c);
        // e4m3 has 3 bits of fraction, and multiples of 2^-9 near 0.
        ASSERT_NEAR(got[at] * s, in[at], std::abs(in[at]) * 0x1p-4 + s * 0x1p-10) << t << " " << c;
      }
    }
  }

  template <class T>
  void CheckScale(int64_t tokens, int64_t rows, int64_t stride, bool one_w_scale, bool has_bias, bool adds) {
    const std::vector<float> sums = Values(tokens * rows, 4, 100.0f), x_scales = Values(tokens, 5),
                             w_scales = Values(one_w_scale ? 1 : rows, 6), bias = Values(rows, 7);
    const std::vector<T> before = Rounded<T>(Values(tokens * stride, 8));
    const Buffer<float> s(sums), xs(x_scales), ws(w_scales), b(bias);
    const Buffer<T> y(before);
    ScaleCall call;
    call.sums = s.data(), call.tokens = tokens, call.rows = rows;
    call.x_scales = xs.data(), call.w_scales = ws.data(), call.one_w_scale = one_w_scale;
    call.bias = has_bias ? b.data() : nullptr;
    call.y = y.data(), call.y_type = RealOf<T>(), call.y_stride = stride, call.adds = adds;
    ScaleSums(stream(), call);
    const std::vector<float> old = Floats(before), got = Floats(y.Read());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < stride; ++r) {
        const auto at = static_cast<size_t>(t * stride + r);
        double want = old[at], size = std::abs(want);
        if (r < rows) {
          const double scaled = double{x_scales[static_cast<size_t>(t)]} *
                                w_scales[static_cast<size_t>(one_w_scale ? 0 : r)] *
                                sums[static_cast<size_t>(t * rows + r)];
          want = scaled + (has_bias ? bias[static_cast<size_t>(r)] : 0) + (adds ? old[at] : 0);
          size = std::max(size, std::abs(scaled)) + 2;
        }
        ASSERT_NEAR(got[at], want, std::abs(want) * RoundingOf<T>() + size * 1e-6) << t << " " << r;
      }
    }
  }
};
TACTUS_DEVICE_TESTS(DenseTest);

TEST_P(DenseTest, BiasIsSpreadOrAdded) {
  for (const bool adds : {false, true}) {
    CheckSpread<float>(3, 257, 300, adds);
    CheckSpread<bf16>(2, 256, 256, adds);
    CheckSpread<f16>(1, 5, 7, adds);
  }
}

TEST_P(DenseTest, RowsAreQuantizedByTheirLargestValue) {
  CheckQuantize<float>(3, 16);
  CheckQuantize<bf16>(2, 304);
  CheckQuantize<f16>(2, 1024);
}

TEST_P(DenseTest, SumsAreScaledByTokenAndRow) {
  for (const bool one_w_scale : {false, true}) {
    for (const bool has_bias : {false, true}) {
      for (const bool adds : {false, true}) CheckScale<float>(2, 9, 11, one_w_scale, has_bias, adds);
    }
  }
  CheckScale<bf16>(3, 272, 272, false, true, false);
  CheckScale<f16>(2, 16, 32, true, false, false);
}

TEST_P(DenseTest, NoTokensLaunchNothing) {
  SpreadBias(stream(), nullptr, 0, 16, nullptr, Real::kF32, 16, false);
  QuantizeToFp8(stream(), nullptr, Real::kBF16, 0, 16, nullptr, nullptr);
  ScaleSums(stream(), {});
}

}  // namespace
}  // namespace tactus::compute::cuda
