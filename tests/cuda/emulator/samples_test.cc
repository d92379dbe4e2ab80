// The sample kernels are right in all orders of lanes, and the emulator finds the bugs planted in them.
#include <cmath>
#include <random>

#include "compute/cuda/gemm.h"
#include "cuda/emulator/device_test.h"
#include "cuda/emulator/samples/samples.h"

namespace tactus::compute::cuda {
namespace {

std::vector<float> Values(int64_t n, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(n));
  uint32_t state = seed * 2654435761u + 1;
  for (float& x : v) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return v;
}

bool Mentions(const std::vector<std::string>& findings, const std::string& text) {
  for (const std::string& finding : findings) {
    if (finding.find(text) != std::string::npos) return true;
  }
  for (const std::string& finding : findings) ADD_FAILURE() << "found instead of '" << text << "': " << finding;
  return false;
}

class SamplesTest : public DeviceTest {};
TACTUS_DEVICE_TESTS(SamplesTest);

void RunNorm(Stream& s, int64_t tokens, int64_t dim, Bug bug, bool check) {
  const std::vector<float> weight = Values(dim, 2);
  const Buffer<bf16> x(Rounded<bf16>(Values(tokens * dim, 1))), out(tokens * dim);
  const Buffer<float> w(weight);
  SampleNorm(s, x.data(), w.data(), tokens, dim, 1e-5f, out.data(), bug);
  const std::vector<float> in = Floats(x.Read()), got = Floats(out.Read());
  for (int64_t t = 0; check && t < tokens; ++t) {
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += double{in[t * dim + i]} * in[t * dim + i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(dim) + 1e-5);
    for (int64_t i = 0; i < dim; ++i) {
      const double want = in[t * dim + i] * scale * weight[i];
      ASSERT_NEAR(got[t * dim + i], want, std::abs(want) * 0x1p-8 + 1e-9) << t << " " << i;
    }
  }
}

TEST_P(SamplesTest, NormIsRight) {
  RunNorm(stream(), 5, 64, Bug::kNone, true);
  RunNorm(stream(), 3, 1000, Bug::kNone, true);
  RunNorm(stream(), 2, 7, Bug::kNone, true);
}

TEST_P(SamplesTest, NormsBugsAreFound) {
  RunNorm(stream(), 3, 200, Bug::kNoBarrier, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "never-written"));
  RunNorm(stream(), 3, 200, Bug::kOneTooMany, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "read out of bounds in Norm"));
  RunNorm(stream(), 3, 200, Bug::kEarlyReturn, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "ended"));
  RunNorm(stream(), 3, 200, Bug::kDivergent, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "lanes of one mask reach different warp functions"));
}

void RunAttention(Stream& s, int64_t heads, int32_t length, int32_t dim, Bug bug, bool check) {
  const int32_t pages = (length + 15) / 16;
  std::vector<int32_t> table;
  for (int32_t i = 0; i < pages; ++i) table.push_back((i * 3 + 1) % 7 + i / 7 * 7);
  const std::vector<float> q = Values(heads * dim, 1), k = Values((pages + 7) * 16 * dim, 2),
                           v = Values((pages + 7) * 16 * dim, 3);
  const Buffer<float> dq(q), dk(k), dv(v), out(heads * dim);
  const Buffer<int32_t> dt(table);
  SampleAttention(s, dq.data(), dk.data(), dv.data(), dt.data(), heads, length, dim, out.data(), bug);
  const std::vector<float> got = out.Read();
  for (int64_t h = 0; check && h < heads; ++h) {
    std::vector<double> weights(static_cast<size_t>(length));
    double total = 0;
    for (int32_t p = 0; p < length; ++p) {
      double dot = 0;
      for (int32_t i = 0; i < dim; ++i) dot += double{q[h * dim + i]} * k[(table[p / 16] * 16 + p % 16) * dim + i];
      total += weights[p] = std::exp(dot);
    }
    for (int32_t i = 0; i < dim; ++i) {
      double want = 0;
      for (int32_t p = 0; p < length; ++p) want += weights[p] / total * v[(table[p / 16] * 16 + p % 16) * dim + i];
      ASSERT_NEAR(got[h * dim + i], want, 1e-5) << h << " " << i;
    }
  }
}

TEST_P(SamplesTest, AttentionIsRight) {
  for (const int32_t length : {1, 16, 17, 80}) RunAttention(stream(), 3, length, 24, Bug::kNone, true);
  RunAttention(stream(), 2, 33, 64, Bug::kNone, true);
}

TEST_P(SamplesTest, AttentionsBugsAreFound) {
  RunAttention(stream(), 2, 80, 24, Bug::kOneTooMany, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "element 5 of 5"));
  RunAttention(stream(), 2, 80, 24, Bug::kNoSecondBarrier, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "race: write after read"));
}

template <class T>
void RunGemm(Stream& s, int64_t tokens, int64_t rows, int64_t cols, Bug bug, bool check) {
  const Buffer<T> x(Rounded<T>(Values(tokens * cols, 1))), w(Rounded<T>(Values(rows * cols, 2)));
  const Buffer<float> y(tokens * rows);
  SampleGemm(s, x.data(), w.data(), std::is_same_v<T, bf16> ? Real::kBF16 : Real::kF16, tokens, rows, cols, y.data(),
             bug);
  const std::vector<float> a = Floats(x.Read()), b = Floats(w.Read()), got = y.Read();
  for (int64_t t = 0; check && t < tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      double want = 0;
      for (int64_t k = 0; k < cols; ++k) want += double{a[t * cols + k]} * b[r * cols + k];
      ASSERT_NEAR(got[t * rows + r], want, 1e-5) << t << " " << r;
    }
  }
}

TEST_P(SamplesTest, GemmIsRight) {
  RunGemm<bf16>(stream(), 64, 64, 32, Bug::kNone, true);
  RunGemm<bf16>(stream(), 70, 130, 72, Bug::kNone, true);
  RunGemm<f16>(stream(), 3, 65, 136, Bug::kNone, true);
}

TEST_P(SamplesTest, GemmsBugsAreFound) {
  RunGemm<bf16>(stream(), 3, 65, 136, Bug::kShortWait, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "read of cp.async data in flight"));
  RunGemm<bf16>(stream(), 3, 65, 256, Bug::kNoSecondBarrier, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "race: write after read"));
  RunGemm<bf16>(stream(), 3, 65, 136, Bug::kOneTooMany, false);
  EXPECT_TRUE(Mentions(emulator::TakeFindings(), "race: write after write"));
}

TEST_P(SamplesTest, LibrarysProductsAreRight) {
  const int64_t tokens = 5, rows = 37, cols = 50;
  auto gemm = std::move(Gemm::Create(true)).value();
  ASSERT_TRUE(gemm->Prepare(rows, cols, tokens, Real::kBF16, Real::kF32).ok());
  const Buffer<bf16> x(Rounded<bf16>(Values(tokens * cols, 1))), w(Rounded<bf16>(Values(rows * cols, 2)));
  const Buffer<float> bias(Values(rows, 3)), y(Values(tokens * rows, 4));
  const std::vector<float> before = y.Read();
  GemmCall call;
  call.x = x.data();
  call.w = w.data();
  call.tokens = tokens;
  call.rows = rows;
  call.cols = cols;
  call.bias = bias.data();
  call.y = y.data();
  call.y_type = Real::kF32;
  call.y_stride = rows;
  call.adds = true;
  gemm->Multiply(stream(), call);
  const std::vector<float> a = Floats(x.Read()), b = Floats(w.Read()), c = bias.Read(), got = y.Read();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      double want = double{c[r]} + before[t * rows + r];
      for (int64_t k = 0; k < cols; ++k) want += double{a[t * cols + k]} * b[r * cols + k];
      ASSERT_NEAR(got[t * rows + r], want, 1e-5) << t << " " << r;
    }
  }
}

}  // namespace
}  // namespace tactus::compute::cuda
