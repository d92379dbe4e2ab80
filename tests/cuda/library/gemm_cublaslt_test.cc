// Products by cuBLASLt's interface, computed by a fake library (fake_cublaslt.cc). Values are small integers, so sums
// are exact. No card has run this.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "compute/cuda/gemm.h"
#include "cuda/library/fake_cublaslt.h"

namespace tactus::compute::cuda {
namespace {

class NoStream final : public Stream {
 public:
  void CopyToDevice(void*, const void*, int64_t) override {}
  void CopyToHost(void*, const void*, int64_t) override {}
  void GatherToHost(void*, const void*, int64_t, int64_t, int64_t) override {}
  void ScatterToDevice(void*, int64_t, const void*, int64_t, int64_t) override {}
  void CopyOnDevice(void*, const void*, int64_t) override {}
  void Fill(void*, int, int64_t) override {}
  void Wait(const Event&) override {}
  void Synchronize() override {}
  void BeginCapture() override {}
  std::unique_ptr<Graph> EndCapture() override { return nullptr; }
  void Run(const Graph&) override {}
};

uint16_t Bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}
float FromBf16(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
float X(int64_t token, int64_t c) {
  return static_cast<float>((token + 2 * c) % 5 - 2);
}
float W(int64_t row, int64_t c) {
  return static_cast<float>((3 * row + c) % 7 - 3);
}
float Sum(int64_t token, int64_t row, int64_t cols) {
  float sum = 0;
  for (int64_t c = 0; c < cols; ++c) sum += X(token, c) * W(row, c);
  return sum;
}
template <class T, class From>
std::vector<T> Matrix(int64_t rows, int64_t cols, float (*value)(int64_t, int64_t), From from) {
  std::vector<T> m;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) m.push_back(from(value(r, c)));
  }
  return m;
}

class LtGemmTest : public testing::Test {
 protected:
  void SetUp() override { Make(false); }
  void Make(bool batch_invariant) {
    setenv("TACTUS_CUBLASLT", TACTUS_FAKE_CUBLASLT, 1);
    auto made = Gemm::Create(batch_invariant);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    gemm_ = std::move(made).value();
    void* library = dlopen(TACTUS_FAKE_CUBLASLT, RTLD_NOW);
    products_ = &reinterpret_cast<FakeProductsFunction*>(dlsym(library, "FakeProducts"))();
    choices_ = &reinterpret_cast<FakeChoicesFunction*>(dlsym(library, "FakeChoices"))();
  }
  void MultiplyBf16(int64_t tokens, int64_t rows, int64_t cols) {
    const auto x = Matrix<uint16_t>(tokens, cols, X, Bf16), w = Matrix<uint16_t>(rows, cols, W, Bf16);
    std::vector<float> y(static_cast<size_t>(tokens * rows));
    GemmCall call{x.data(), w.data(), Real::kBF16, tokens, rows, cols};
    call.y = y.data();
    call.y_type = Real::kF32;
    call.y_stride = rows;
    gemm_->Multiply(stream_, call);
    EXPECT_EQ(y.back(), Sum(tokens - 1, rows - 1, cols));
  }

  NoStream stream_;
  std::unique_ptr<Gemm> gemm_;
  const std::vector<FakeProduct>* products_ = nullptr;
  const std::vector<FakeChoice>* choices_ = nullptr;
};

TEST_F(LtGemmTest, ProductHasTheSumsOfEachTokenInItsRow) {
  constexpr int64_t kTokens = 5, kRows = 3, kCols = 8, kStride = 10;
  ASSERT_TRUE(gemm_->Prepare(kRows, kCols, kTokens, Real::kBF16, Real::kBF16).ok());
  const auto x = Matrix<uint16_t>(kTokens, kCols, X, Bf16), w = Matrix<uint16_t>(kRows, kCols, W, Bf16);
  std::vector<uint16_t> y(kTokens * kStride, Bf16(-99));
  GemmCall call{x.data(), w.data(), Real::kBF16, kTokens, kRows, kCols};
  call.y = y.data();
  call.y_stride = kStride;
  gemm_->Multiply(stream_, call);
  ASSERT_TRUE(DeviceStatus().ok());
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t r = 0; r < kStride; ++r) {
      EXPECT_EQ(FromBf16(y[static_cast<size_t>(t * kStride + r)]), r < kRows ? Sum(t, r, kCols) : -99) << t << " " << r;
    }
  }
}

TEST_F(LtGemmTest, BiasAndOldValuesAreAdded) {
  constexpr int64_t kTokens = 2, kRows = 4, kCols = 8;
  ASSERT_TRUE(gemm_->Prepare(kRows, kCols, kTokens, Real::kF32, Real::kF32).ok());
  const auto same = [](float v) { return v; };
  const auto x = Matrix<float>(kTokens, kCols, X, same), w = Matrix<float>(kRows, kCols, W, same);
  const std::vector<float> bias = {10, 20, 30, 40};
  for (const bool adds : {false, true}) {
    for (const bool has_bias : {false, true}) {
      std::vector<float> y(kTokens * kRows, 1000);
      GemmCall call{x.data(), w.data(), Real::kF32, kTokens, kRows, kCols};
      call.bias = has_bias ? bias.data() : nullptr;
      call.y = y.data();
      call.y_type = Real::kF32;
      call.y_stride = kRows;
      call.adds = adds;
      gemm_->Multiply(stream_, call);
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t r = 0; r < kRows; ++r) {
          EXPECT_EQ(y[static_cast<size_t>(t * kRows + r)],
                    Sum(t, r, kCols) + (adds ? 1000 : 0) + (has_bias ? bias[static_cast<size_t>(r)] : 0));
        }
      }
    }
  }
}

TEST_F(LtGemmTest, AlgorithmIsChosenOncePerBucketAtItsUpperEnd) {
  ASSERT_TRUE(gemm_->Prepare(24, 16, 33, Real::kBF16, Real::kF32).ok());
  std::vector<int64_t> chosen_at;
  for (const FakeChoice& choice : *choices_) {
    if (choice.rows == 24) chosen_at.push_back(choice.columns);
  }
  EXPECT_EQ(chosen_at, (std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64}));
  const size_t choices = choices_->size();
  MultiplyBf16(5, 24, 16);
  EXPECT_EQ(products_->back().algorithm, 2) << "algorithm 1 computes 8 tokens, but not all of the bucket";
  MultiplyBf16(9, 24, 16);
  EXPECT_EQ(products_->back().algorithm, 1);
  EXPECT_EQ(choices_->size(), choices) << "Multiply chose an algorithm again";
  EXPECT_EQ(choices_->back().reductions, 7u);
  EXPECT_EQ(choices_->back().alignment, 16u);
}

TEST_F(LtGemmTest, BatchInvarianceUsesOneUnsplitAlgorithmForAllTokens) {
  Make(true);
  ASSERT_TRUE(gemm_->Prepare(40, 16, 300, Real::kBF16, Real::kF32).ok());
  EXPECT_EQ(choices_->back().reductions, 0u);
  const size_t choices = choices_->size();
  for (const int64_t tokens : {1, 3, 9, 300}) {
    MultiplyBf16(tokens, 40, 16);
    EXPECT_EQ(products_->back().algorithm, 2) << "algorithm 1 does not compute few tokens";
  }
  EXPECT_EQ(choices_->size(), choices);
}

TEST_F(LtGemmTest, OddRowsLowerTheAlignmentThatIsAskedFor) {
  ASSERT_TRUE(gemm_->Prepare(7, 16, 8, Real::kBF16, Real::kBF16).ok());
  EXPECT_EQ(choices_->back().alignment, 2u);
}

TEST_F(LtGemmTest, Fp8ProductIsScaledByRowAndToken) {
  constexpr int64_t kTokens = 3, kRows = 16, kCols = 16;
  ASSERT_TRUE(gemm_->PrepareFp8(kRows, kCols, kTokens).ok());
  const auto code = [](float v) { return static_cast<int8_t>(v); };
  const auto x = Matrix<int8_t>(kTokens, kCols, X, code), w = Matrix<int8_t>(kRows, kCols, W, code);
  const std::vector<float> x_scales = {1, 2, 0.5f}, w_scales(kRows, 4), bias(kRows, 7);
  std::vector<uint16_t> y(kTokens * kRows);
  GemmCall call{x.data(), w.data(), Real::kBF16, kTokens, kRows, kCols};
  call.x_scales = x_scales.data();
  call.w_scales = w_scales.data();
  call.bias = bias.data();
  call.y = y.data();
  call.y_stride = kRows;
  gemm_->Multiply(stream_, call);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t r = 0; r < kRows; ++r) {
      const float value = Sum(t, r, kCols) * x_scales[static_cast<size_t>(t)] * 4 + 7;
      EXPECT_EQ(y[static_cast<size_t>(t * kRows + r)], Bf16(value)) << t << " " << r;
    }
  }
}

TEST_F(LtGemmTest, Fp8ProductOfManyTokensIsComputedInPieces) {
  constexpr int64_t kRows = 1 << 20, kCols = 16, kTokens = 20;  // sums of 16 tokens fill 64 MiB
  ASSERT_TRUE(gemm_->PrepareFp8(kRows, kCols, kTokens).ok());
  const std::vector<int8_t> x(kTokens * kCols, 1), w(kRows * kCols, 1);
  std::vector<float> x_scales(kTokens);
  for (size_t t = 0; t < x_scales.size(); ++t) x_scales[t] = static_cast<float>(t);
  const float w_scale = 1;
  std::vector<uint16_t> y(kTokens * kRows);
  GemmCall call{x.data(), w.data(), Real::kBF16, kTokens, kRows, kCols};
  call.x_scales = x_scales.data();
  call.w_scales = &w_scale;
  call.one_w_scale = true;
  call.y = y.data();
  call.y_stride = kRows;
  const size_t before = products_->size();
  gemm_->Multiply(stream_, call);
  EXPECT_EQ(products_->size() - before, 2u);
  for (int64_t t = 0; t < kTokens; ++t) {
    EXPECT_EQ(FromBf16(y[static_cast<size_t>((t + 1) * kRows - 1)]), static_cast<float>(16 * t)) << t;
  }
}

TEST_F(LtGemmTest, Fp8ProductsAreBatchInvariantAsOthers) {
  constexpr int64_t kRows = 48, kCols = 16, kMost = 300;
  const std::vector<int8_t> x(kMost * kCols, 1), w(kRows * kCols, 1);
  const std::vector<float> scales(kMost, 1);
  std::vector<float> y(kMost * kRows);
  const auto algorithm_of = [&](int64_t tokens) {
    GemmCall call{x.data(), w.data(), Real::kBF16, tokens, kRows, kCols};
    call.x_scales = call.w_scales = scales.data();
    call.y = y.data();
    call.y_type = Real::kF32;
    call.y_stride = kRows;
    gemm_->Multiply(stream_, call);
    return products_->back().algorithm;
  };
  for (const bool batch_invariant : {true, false}) {
    Make(batch_invariant);
    ASSERT_TRUE(gemm_->PrepareFp8(kRows, kCols, kMost).ok());
    EXPECT_EQ(choices_->back().reductions, batch_invariant ? 0u : 7u);
    const size_t choices = choices_->size();
    EXPECT_EQ(algorithm_of(1) == algorithm_of(9), batch_invariant);
    EXPECT_EQ(algorithm_of(3) == algorithm_of(kMost), batch_invariant);
    EXPECT_EQ(choices_->size(), choices) << "Multiply chose an algorithm again";
  }
}

TEST_F(LtGemmTest, WhatTheLibraryCannotComputeIsRefusedOrFailsTheDevice) {
  EXPECT_EQ(gemm_->Prepare(8, 8, 8, Real::kF32, Real::kBF16).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(gemm_->PrepareFp8(8, 16, 8).code(), StatusCode::kUnimplemented);
  GemmCall call;
  call.tokens = 1, call.rows = 16, call.cols = 16;
  const float scale = 1;
  call.x_scales = call.w_scales = &scale;
  gemm_->Multiply(stream_, call);
  EXPECT_EQ(DeviceStatus().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace tactus::compute::cuda
