// Dense products (gemm.h): sums in double precision, and rows whose bits do not depend on the batch. On the emulated
// device these are plain loops; on a card they are cuBLASLt's.
#include "compute/cuda/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cuda/emulator/device_test.h"

namespace tactus::compute::cuda {
namespace {

struct Shape {
  int64_t rows, cols;
};
// The second list is Llama-3.1-8B's, for a card alone.
constexpr Shape kSmall[] = {{48, 64}, {80, 48}, {320, 64}};
constexpr Shape kLarge[] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
constexpr int64_t kBatches[] = {1, 2, 7, 8, 9, 16, 33, 64, 128, 256, 300, 1000, 2048};

// Values of the device's type, in [-1, 1].
template <class T>
std::vector<T> RandomValues(int64_t n, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = seed * 747796405u + 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return Rounded<T>(values);
}

class GemmTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    auto made = Gemm::Create(true);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    gemm_ = std::move(made).value();
  }

  template <class T>
  GemmCall CallOf(const Shape& shape, int64_t tokens, const Buffer<T>& x, const Buffer<T>& w) {
    GemmCall call;
    call.type = std::is_same_v<T, float> ? Real::kF32 : Real::kBF16;
    call.x = x.data(), call.w = w.data();
    call.tokens = tokens, call.rows = shape.rows, call.cols = shape.cols;
    call.y_stride = shape.rows;
    return call;
  }

  // y of f32, added to what was there.
  template <class T>
  void CheckSums(const Shape& shape, int64_t tokens) {
    const std::vector<T> x_values = RandomValues<T>(tokens * shape.cols, 1),
                         w_values = RandomValues<T>(shape.rows * shape.cols, 2);
    const std::vector<float> before = Floats(RandomValues<float>(tokens * shape.rows, 3)),
                             bias_values = Floats(RandomValues<float>(shape.rows, 4));
    const Buffer<T> x(x_values), w(w_values);
    const Buffer<float> y(before), bias(bias_values);
    GemmCall call = CallOf(shape, tokens, x, w);
    call.y = y.data(), call.y_type = Real::kF32, call.adds = true, call.bias = bias.data();
    ASSERT_TRUE(gemm_->Prepare(shape.rows, shape.cols, tokens, call.type, call.y_type).ok());
    gemm_->Multiply(stream(), call);
    const std::vector<float> got = y.Read(), xs = Floats(x_values), ws = Floats(w_values);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < shape.rows; ++r) {
        const auto at = static_cast<size_t>(t * shape.rows + r);
        double want = double{before[at]} + bias_values[static_cast<size_t>(r)];
        for (int64_t c = 0; c < shape.cols; ++c) {
          want += double{xs[static_cast<size_t>(t * shape.cols + c)]} * ws[static_cast<size_t>(r * shape.cols + c)];
        }
        ASSERT_NEAR(got[at], want, 1e-5 * static_cast<double>(shape.cols)) << "token " << t << ", row " << r;
      }
    }
  }

  template <class T>
  std::vector<T> Product(const Shape& shape, int64_t tokens, const Buffer<T>& x, const Buffer<T>& w) {
    const Buffer<T> y(tokens * shape.rows);
    GemmCall call = CallOf(shape, tokens, x, w);
    call.y = y.data(), call.y_type = call.type;
    gemm_->Multiply(stream(), call);
    return y.Read();
  }

  // Each batch's tokens are the first ones of the largest batch.
  template <class T>
  void CheckBatches(const Shape& shape, int64_t most) {
    const Buffer<T> x(RandomValues<T>(most * shape.cols, 5)), w(RandomValues<T>(shape.rows * shape.cols, 6));
    const Real type = std::is_same_v<T, float> ? Real::kF32 : Real::kBF16;
    const Status prepared = gemm_->Prepare(shape.rows, shape.cols, most, type, type);
    ASSERT_TRUE(prepared.ok()) << prepared.ToString();
    const std::vector<T> all = Product<T>(shape, most, x, w);
    for (const int64_t tokens : kBatches) {
      if (tokens >= most) break;
      const std::vector<T> some = Product<T>(shape, tokens, x, w);
      const size_t row_bytes = static_cast<size_t>(shape.rows) * sizeof(T);
      int64_t differ = 0;
      for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
        const size_t at = t * static_cast<size_t>(shape.rows);
        if (std::memcmp(some.data() + at, all.data() + at, row_bytes) != 0) ++differ;
      }
      EXPECT_EQ(differ, 0) << differ << " of " << tokens << " tokens have other bits than in a batch of " << most
                           << ", with a matrix of " << shape.rows << " x " << shape.cols;
    }
  }

  std::unique_ptr<Gemm> gemm_;
};
TACTUS_DEVICE_TESTS(GemmTest);

TEST_P(GemmTest, SumsAreThoseOfDoublePrecision) {
  for (const Shape& shape : kSmall) {
    for (const int64_t tokens : {1, 3, 17}) {
      CheckSums<float>(shape, tokens);
      CheckSums<bf16>(shape, tokens);
    }
  }
}

TEST_P(GemmTest, RowsHaveTheSameBitsInEveryBatch) {
  for (const Shape& shape : kSmall) {
    CheckBatches<float>(shape, 33);
    CheckBatches<bf16>(shape, 33);
  }
  if (emulator::kEmulated) return;
  for (const Shape& shape : kLarge) CheckBatches<bf16>(shape, 2048);
  CheckBatches<float>(kLarge[1], 300);
}

}  // namespace
}  // namespace tactus::compute::cuda
