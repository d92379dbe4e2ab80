// The linear operator of every kernel set: within a norm-based bound of ref, and the same bits in any batch and on any
// number of threads.
#include <gtest/gtest.h>

#include <cmath>

#include "compute/kernels/kernel_testing.h"

namespace tactus::compute {
namespace {

using testing::kAllDTypes;
using testing::OwnedMatrix;
using testing::OwnedWorkspace;
using testing::RandomFloats;
using testing::RandomMatrix;

std::string NameOf(const Ops* ops, DType dtype) {
  return std::string(ops->name) + " " + InfoOf(dtype).name;
}

std::vector<float> RunLinear(const Ops& ops, ThreadPool& pool, const std::vector<float>& x, int64_t tokens,
                             const MatrixView& w, const float* bias) {
  OwnedWorkspace scratch(tokens, w.cols, 1, 8, pool.threads());
  std::vector<float> y(static_cast<size_t>(tokens * w.rows), -1.0f);
  ops.linear(pool, x.data(), tokens, w, bias, y.data(), scratch.view());
  return y;
}

TEST(Linear, AgreesWithRefWithinTheRoundingBound) {
  ThreadPool pool(2, SystemClock());
  for (const DType dtype : kAllDTypes) {
    const bool plain = InfoOf(dtype).block_elements == 1;
    // Odd widths for plain formats; more than one chunk of K; rows that do not fill a tile.
    for (const int64_t cols : plain ? std::vector<int64_t>{1, 7, 33, 100, 1500} : std::vector<int64_t>{256, 1536}) {
      const int64_t tokens = 9, rows = 23;
      const OwnedMatrix w = RandomMatrix(dtype, rows, cols, 11);
      const std::vector<float> x = RandomFloats(tokens * cols, 12), bias = RandomFloats(rows, 13);
      const std::vector<float> want = RunLinear(*SelectOps("ref"), pool, x, tokens, w.view, bias.data());
      for (const Ops* ops : RunnableOps()) {
        const std::vector<float> got = RunLinear(*ops, pool, x, tokens, w.view, bias.data());
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t n = 0; n < rows; ++n) {
            std::vector<float> row(static_cast<size_t>(cols));
            SelectOps("ref")->dequantize_row(w.view, n, row.data());
            double magnitude = std::fabs(bias[n]);
            for (int64_t k = 0; k < cols; ++k) magnitude += std::fabs(static_cast<double>(x[t * cols + k]) * row[k]);
            // Any order of summation is within K ulp of the sum of magnitudes; the usual error is its square root.
            const double bound = 4 * std::sqrt(static_cast<double>(cols) + 4) * 0x1.0p-24 * magnitude;
            ASSERT_NEAR(got[t * rows + n], want[t * rows + n], bound)
                << NameOf(ops, dtype) << " cols " << cols << " token " << t << " row " << n;
          }
        }
      }
    }
  }
}

TEST(Linear, TokensAreNotRounded) {
  ThreadPool pool(1, SystemClock());
  const float x = 1.0f + 0x1.0p-9f;  // would be 1 in bf16
  const uint16_t one = F32ToBF16(1.0f);
  const MatrixView w = {&one, DType::kBF16, 1, 1, 2};
  for (const Ops* ops : RunnableOps()) EXPECT_EQ(RunLinear(*ops, pool, {x}, 1, w, nullptr)[0], x) << ops->name;
}

TEST(Linear, ARowHasTheSameBitsInEveryBatch) {
  constexpr int64_t kTokens = 130, kRows = 21;
  ThreadPool one(1, SystemClock());
  for (const DType dtype : kAllDTypes) {
    const int64_t cols = InfoOf(dtype).block_elements == 1 ? 1061 : 1280;
    const OwnedMatrix w = RandomMatrix(dtype, kRows, cols, 21);
    const std::vector<float> x = RandomFloats(kTokens * cols, 22), bias = RandomFloats(kRows, 23);
    for (const Ops* ops : RunnableOps()) {
      if (std::string_view(ops->name) == "ref") continue;
      std::vector<float> alone(kTokens * kRows);
      for (int64_t t = 0; t < kTokens; ++t) {
        const std::vector<float> row(x.begin() + t * cols, x.begin() + (t + 1) * cols);
        const std::vector<float> y = RunLinear(*ops, one, row, 1, w.view, bias.data());
        std::copy(y.begin(), y.end(), alone.begin() + t * kRows);
      }
      for (int64_t tokens = 2; tokens <= kTokens; ++tokens) {
        const std::vector<float> y = RunLinear(*ops, one, x, tokens, w.view, bias.data());
        ASSERT_TRUE(testing::SameBits(y.data(), alone.data(), tokens * kRows)) << NameOf(ops, dtype) << " M " << tokens;
      }
    }
  }
}

TEST(Linear, ThreadsChangeNoBit) {
  constexpr int64_t kTokens = 110, kRows = 200;
  ThreadPool one(1, SystemClock()), two(2, SystemClock()), three(3, SystemClock()), five(5, SystemClock());
  for (const DType dtype : kAllDTypes) {
    const int64_t cols = InfoOf(dtype).block_elements == 1 ? 1061 : 1280;
    const OwnedMatrix w = RandomMatrix(dtype, kRows, cols, 31);
    const std::vector<float> x = RandomFloats(kTokens * cols, 32);
    for (const Ops* ops : RunnableOps()) {
      if (std::string_view(ops->name) == "ref") continue;
      for (int64_t tokens : {int64_t{1}, int64_t{5}, kTokens}) {
        const std::vector<float> want = RunLinear(*ops, one, x, tokens, w.view, nullptr);
        for (ThreadPool* pool : {&two, &three, &five}) {
          const std::vector<float> got = RunLinear(*ops, *pool, x, tokens, w.view, nullptr);
          ASSERT_TRUE(testing::SameBits(got.data(), want.data(), tokens * kRows))
              << NameOf(ops, dtype) << " threads " << pool->threads() << " M " << tokens;
        }
      }
    }
  }
}

TEST(Linear, RowsMayBePadded) {
  ThreadPool pool(2, SystemClock());
  constexpr int64_t kCols = 40, kRows = 9, kStride = 50;
  const std::vector<float> w = RandomFloats(kRows * kStride, 41), x = RandomFloats(kCols, 42);
  const MatrixView view = {w.data(), DType::kF32, kRows, kCols, kStride * 4};
  const std::vector<float> want = RunLinear(*SelectOps("ref"), pool, x, 1, view, nullptr);
  for (const Ops* ops : RunnableOps()) {
    const std::vector<float> got = RunLinear(*ops, pool, x, 1, view, nullptr);
    for (int64_t n = 0; n < kRows; ++n) EXPECT_NEAR(got[n], want[n], 1e-5) << ops->name;
  }
}

TEST(Linear, NoTokensIsNoWork) {
  ThreadPool pool(2, SystemClock());
  const OwnedMatrix w = RandomMatrix(DType::kF32, 4, 8, 51);
  for (const Ops* ops : RunnableOps()) {
    EXPECT_TRUE(RunLinear(*ops, pool, {}, 0, w.view, nullptr).empty());
  }
}

}  // namespace
}  // namespace tactus::compute
