// Dense products of few tokens, against sums in double precision.
#include "compute/cuda/kernels/few_tokens.h"

#include <cmath>

#include "cuda/emulator/device_test.h"

namespace tactus::compute::cuda {
namespace {

std::vector<float> Noise(int64_t n, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(n));
  uint32_t state = seed * 747796405u + 1;
  for (float& x : v) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return v;
}

struct Form {
  int64_t tokens = 1, rows = 1, cols = 8, y_stride = 0;
  bool has_bias = false, adds = false;
};

class FewTokensTest : public DeviceTest {
 protected:
  template <class T, class Y>
  void Check(const Form& form) {
    const int64_t stride = form.y_stride > 0 ? form.y_stride : form.rows;
    const std::vector<T> x = Rounded<T>(Noise(form.tokens * form.cols, 1)),
                         w = Rounded<T>(Noise(form.rows * form.cols, 2));
    const std::vector<float> bias = Noise(form.rows, 3);
    const std::vector<Y> before = Rounded<Y>(Noise(form.tokens * stride, 4));
    const Buffer<T> x_at(x), w_at(w);
    const Buffer<float> bias_at(bias);
    const Buffer<Y> y_at(before);
    GemmCall call;
    call.x = x_at.data(), call.w = w_at.data();
    call.type = std::is_same_v<T, bf16> ? Real::kBF16 : Real::kF16;
    call.tokens = form.tokens, call.rows = form.rows, call.cols = form.cols;
    call.bias = form.has_bias ? bias_at.data() : nullptr;
    call.y = y_at.data(), call.y_type = std::is_same_v<Y, float> ? Real::kF32 : call.type, call.y_stride = stride;
    call.adds = form.adds;
    ASSERT_TRUE(IsFewTokens(call));
    MultiplyFew(stream(), call);

    const std::vector<float> xs = Floats(x), ws = Floats(w), old = Floats(before), got = Floats(y_at.Read());
    const double rounding = std::is_same_v<Y, float> ? 1e-6 : std::is_same_v<Y, bf16> ? 0x1p-8 : 0x1p-11;
    for (int64_t t = 0; t < form.tokens; ++t) {
      for (int64_t r = 0; r < stride; ++r) {
        const auto at = static_cast<size_t>(t * stride + r);
        double want = old[at], size = 1.0;
        if (r < form.rows) {
          want = (form.adds ? old[at] : 0.0) + (form.has_bias ? bias[static_cast<size_t>(r)] : 0.0);
          for (int64_t c = 0; c < form.cols; ++c) {
            const double product =
                double{xs[static_cast<size_t>(t * form.cols + c)]} * ws[static_cast<size_t>(r * form.cols + c)];
            want += product;
            size += std::abs(product);
          }
        }
        ASSERT_NEAR(got[at], want, std::abs(want) * rounding + size * 1e-6)
            << form.tokens << " tokens, [" << form.rows << ", " << form.cols << "]: token " << t << ", row " << r;
      }
    }
  }
};
TACTUS_DEVICE_TESTS(FewTokensTest);

TEST_P(FewTokensTest, SumsAreThoseOfTheProduct) {
  for (int64_t tokens = 1; tokens <= kFewDenseTokens; ++tokens) {
    Check<bf16, float>({.tokens = tokens, .rows = 17, .cols = 264});
    Check<f16, f16>({.tokens = tokens, .rows = 8, .cols = 512});
  }
  Check<bf16, bf16>({.tokens = 3, .rows = 1, .cols = 8});
  Check<bf16, bf16>({.tokens = 2, .rows = 9, .cols = 808});
  Check<f16, float>({.tokens = 4, .rows = 2, .cols = 16});
}

TEST_P(FewTokensTest, BiasesAndEarlierValuesAreAddedAndOtherColumnsStay) {
  for (const bool has_bias : {false, true}) {
    for (const bool adds : {false, true}) {
      Check<bf16, float>({.tokens = 2, .rows = 11, .cols = 40, .y_stride = 13, .has_bias = has_bias, .adds = adds});
    }
  }
  Check<f16, f16>({.tokens = 4, .rows = 5, .cols = 24, .y_stride = 8, .has_bias = true});
}

TEST_P(FewTokensTest, OtherCallsAreLeftToTheLibrary) {
  alignas(16) char memory[64];
  GemmCall call;
  call.x = memory, call.w = memory, call.tokens = 1, call.rows = 1, call.cols = 8;
  EXPECT_TRUE(IsFewTokens(call));
  const auto refused = [&](auto change, const char* what) {
    GemmCall other = call;
    change(other);
    EXPECT_FALSE(IsFewTokens(other)) << what;
  };
  refused([](GemmCall& c) { c.tokens = 5; }, "five tokens");
  refused([](GemmCall& c) { c.tokens = 0; }, "no tokens");
  refused([](GemmCall& c) { c.type = Real::kF32, c.y_type = Real::kF32; }, "f32 values");
  refused([](GemmCall& c) { c.cols = 9; }, "rows that are not aligned");
  refused([&](GemmCall& c) { c.x = memory + 2; }, "an address of x that is not aligned");
  refused([&](GemmCall& c) { c.w = memory + 8; }, "an address of w that is not aligned");
  refused([](GemmCall& c) { c.y_type = Real::kF16; }, "an output of another type");
  const float scale = 1.0f;
  refused([&](GemmCall& c) { c.x_scales = &scale; }, "codes in e4m3");
}

}  // namespace
}  // namespace tactus::compute::cuda
