// Rounding by least squares: each step against its definition, in double or in the exact order that headers state.
#include "compute/kernels/fit/least_squares.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "compute/kernels/fit/product.h"
#include "compute/kernels/packed/quantize_blocks.h"
#include "compute/tensor/float16.h"
#include "packed_testing.h"

namespace tactus::compute::testing::fit_test {
namespace {

// The chains that product.h defines.
float ProductOf(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t k, float c) {
  for (int64_t from = 0; from < k; from += 256) {
    float sum = 0;
    for (int64_t i = from; i < std::min(k, from + 256); ++i) sum += a[i * a_stride] * b[i * b_stride];
    c += sum;
  }
  return c;
}

TEST(Fit, ProductsHaveTheBitsOfTheirDefinition) {
  for (const auto& [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {5, 300, 37}, {130, 513, 129}}) {
    const std::vector<float> a = RandomFloats(m * k, 1), b = RandomFloats(k * n, 2), start = RandomFloats(m * n, 3);
    for (const bool turned : {false, true}) {
      for (const int32_t threads : {1, 3}) {
        ThreadPool pool(threads, SystemClock());
        std::vector<float> c = start;
        const StridedView va = turned ? StridedView{a.data(), 1, m} : StridedView{a.data(), k, 1};
        const StridedView vb = turned ? StridedView{b.data(), 1, k} : StridedView{b.data(), n, 1};
        AddProduct(pool, {.a = va, .b = vb, .c = c.data(), .m = m, .k = k, .n = n, .c_stride = n});
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            ASSERT_EQ(c[i * n + j], ProductOf(a.data() + i * va.row_stride, va.col_stride, b.data() + j * vb.col_stride,
                                              vb.row_stride, k, start[i * n + j]))
                << m << " " << i << " " << j << " turned " << turned;
          }
        }
        if (k > 256) continue;  // otherwise the reverse is not the same chain
        AddProduct(pool, {.a = va, .b = vb, .c = c.data(), .m = m, .k = k, .n = n, .c_stride = n, .subtract = true});
        for (int64_t i = 0; i < m * n; ++i) ASSERT_NEAR(c[i], start[i], 1e-5f);
      }
    }
  }
}

// Inputs whose columns depend on each other, as activations' do.
std::vector<float> Inputs(int64_t tokens, int64_t cols) {
  std::vector<float> x = RandomFloats(tokens * cols, 7);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 1; c < cols; ++c) x[t * cols + c] += 0.9f * x[t * cols + c - 1];
  return x;
}

struct Factored {
  Factored(const std::vector<float>& x, int64_t n) : cols(n), u(n * n), importance(n) {
    ThreadPool pool(2, SystemClock());
    GramUpper(pool, x.data(), static_cast<int64_t>(x.size()) / n, n, u.data());
    gram = u;
    ok = FactorInputs(pool, n, 0.01f, u.data(), importance.data());
  }
  int64_t cols;
  std::vector<float> gram, u, importance;
  bool ok = false;
};

TEST(Fit, FactorsMultiplyToTheInputsGram) {
  const int64_t cols = 200, tokens = 300;
  const std::vector<float> x = Inputs(tokens, cols);
  const Factored f(x, cols);
  ASSERT_TRUE(f.ok);
  double mean = 0;
  for (int64_t k = 0; k < cols; ++k) mean += f.gram[k * cols + k] / static_cast<double>(cols);
  for (int64_t i = 0; i < cols; ++i) {
    double of_x = 0;
    for (int64_t t = 0; t < tokens; ++t) of_x += static_cast<double>(x[t * cols + i]) * x[t * cols + cols - 1];
    ASSERT_NEAR(f.gram[i * cols + cols - 1], of_x, 1e-5 * mean) << i;
    ASSERT_NEAR(f.importance[i], f.gram[i * cols + i] + 0.01 * mean, 1e-5 * mean) << i;
    for (int64_t j = i; j < cols; ++j) {
      double sum = 0;  // (I + U) D (I + U)^T, with the roots of D on u's diagonal
      for (int64_t k = j; k < cols; ++k) {
        const double root = f.u[k * cols + k];
        sum += (i == k ? 1.0 : f.u[i * cols + k]) * (j == k ? 1.0 : f.u[j * cols + k]) * root * root;
      }
      ASSERT_NEAR(sum, f.gram[i * cols + j] + (i == j ? 0.01 * mean : 0.0), 1e-5 * mean) << i << " " << j;
    }
  }
}

TEST(Fit, InputsWithoutFactorsAreRefused) {
  for (const float value : {0.0f, NAN, INFINITY}) {
    EXPECT_FALSE(Factored(std::vector<float>(64 * 130, value), 130).ok) << value;
  }
}

struct Rounded {
  Rounded(const std::vector<float>& from, const Factored& f, int32_t threads)
      : w(from), bytes(FormOf(from, f.cols).bytes()), form(FormOf(from, f.cols)) {
    ThreadPool pool(threads, SystemClock());
    std::vector<float> errors(w.size());
    RoundInt4(pool, f.u.data(), f.importance.data(), form, w.data(), errors.data(), bytes.data());
    form.data = bytes.data();
  }
  static PackedMatrix FormOf(const std::vector<float>& w, int64_t cols) {
    PackedMatrix form;
    EXPECT_TRUE(QuantizedFormOf(Quantization::kInt4, static_cast<int64_t>(w.size()) / cols, cols, &form));
    return form;
  }
  std::vector<float> w;
  Aligned bytes;
  PackedMatrix form;
};

double OutputError(const std::vector<float>& x, const float* w, const float* rounded, int64_t cols) {
  double error = 0;
  for (size_t t = 0; t < x.size(); t += static_cast<size_t>(cols)) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += x[t + static_cast<size_t>(c)] * (static_cast<double>(w[c]) - rounded[c]);
    error += sum * sum;
  }
  return error;
}

// Column after column, row by row, as in least_squares.h.
TEST(Fit, RoundingFollowsItsDefinitionAndOutputsAreCloser) {
  const int64_t cols = 200, rows = 70;  // neither ends with a group or a panel
  const std::vector<float> x = Inputs(300, cols), w = RandomFloats(rows * cols, 8, 0.05f);
  const Factored f(x, cols);
  const Rounded one(w, f, 1), many(w, f, 3);
  double by_least_squares = 0, nearest = 0;
  const OwnedPacked plain(ViewOf(w, rows, cols), Form{compute::DType::kF32, Quantization::kInt4}.at(rows, cols));
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> errors(cols), want(cols);
    for (int64_t first = 0; first < cols; first += 64) {
      const int64_t n = std::min<int64_t>(64, cols - first);
      float values[64] = {}, weights[64] = {};
      for (int64_t k = 0; k < n; ++k) {
        values[k] = ProductOf(errors.data(), 1, f.u.data() + first + k, cols, first, w[r * cols + first + k]);
        weights[k] = f.importance[static_cast<size_t>(first + k)];
      }
      uint8_t unused[64];
      const BlockScale grid = QuantizeInt4(values, weights, unused);
      const float scale = compute::F16ToF32(grid.scale);
      for (int64_t k = 0; k < n; ++k) {
        const float at = std::fmin(15.0f, std::fmax(0.0f, (values[k] * (1.0f / scale) + grid.zero) * 0.25f));
        const float value = (4.0f * std::nearbyint(at) - grid.zero) * scale, error = w[r * cols + first + k] - value;
        want[static_cast<size_t>(first + k)] = value;
        errors[static_cast<size_t>(first + k)] = error;
        for (int64_t j = k + 1; j < n; ++j) values[j] += f.u[(first + k) * cols + first + j] * error;
      }
    }
    ASSERT_EQ(RowOf(one.form, r), want) << r;
    ASSERT_EQ(RowOf(many.form, r), want) << r;
    ASSERT_EQ(std::vector<float>(one.w.begin() + r * cols, one.w.begin() + (r + 1) * cols), want) << r;
    by_least_squares += OutputError(x, w.data() + r * cols, want.data(), cols);
    nearest += OutputError(x, w.data() + r * cols, RowOf(plain.form, r).data(), cols);
  }
  EXPECT_LT(by_least_squares, 0.5 * nearest);
}

TEST(Fit, GridsDependOnTheErrorWeights) {
  std::vector<float> x = RandomFloats(64, 9), weights(64, 1.0f);
  uint8_t alike[64], codes[64];
  const BlockScale even = QuantizeInt4(x.data(), alike);
  ASSERT_EQ(QuantizeInt4(x.data(), weights.data(), codes).scale, even.scale);
  ASSERT_TRUE(std::equal(codes, codes + 64, alike));
  for (int i = 0; i < 64; ++i) weights[static_cast<size_t>(i)] = i < 8 ? 100.0f : 1.0f;
  const auto error = [&](const BlockScale& s, const uint8_t* c) {
    double sum = 0;
    for (size_t i = 0; i < 64; ++i)
      sum += weights[i] * std::pow((4.0 * c[i] - s.zero) * compute::F16ToF32(s.scale) - x[i], 2);
    return sum;
  };
  const BlockScale weighted = QuantizeInt4(x.data(), weights.data(), codes);
  EXPECT_LT(error(weighted, codes), 0.9 * error(even, alike));
}

}  // namespace
}  // namespace tactus::compute::testing::fit_test
