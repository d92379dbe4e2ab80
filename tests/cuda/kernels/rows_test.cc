// The operators on rows against double references: those of the CPU's set "ref" where it has them.
#include "compute/cuda/kernels/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/clock.h"
#include "compute/kernels/ops.h"
#include "row_testing.h"

namespace tactus::compute::cuda::rows_test {
namespace {

class RowsTest : public DeviceTest {
 protected:
  const Ops& ref() const { return *RunnableOps().front(); }

  ThreadPool pool_{1, SystemClock()};
};
TACTUS_DEVICE_TESTS(RowsTest);

TEST_P(RowsTest, EmbedRowsScalesTheRowsOfIds) {
  const std::vector<int32_t> ids = {4, 0, 2, 4, 5, -1};  // 5 and -1 are not in the table: row 0
  for (const int64_t dim : {1, 7, 96, 2056}) {
    ForTypes([&](auto value) {
      using T = decltype(value);
      SCOPED_TRACE(dim);
      const std::vector<T> table = Rounded<T>(Normals(5 * dim, 1));
      const Buffer<T> rows(table);
      const Buffer<int32_t> chosen(ids);
      const Buffer<float> x(6 * dim);
      EmbedRows(stream(), chosen.data(), 6, rows.data(), RealOf<T>(), 5, dim, 1.7f, x.data());
      const std::vector<float> got = x.Read();
      for (int64_t t = 0; t < 6; ++t) {
        const int64_t id =
            ids[static_cast<size_t>(t)] == 5 || ids[static_cast<size_t>(t)] < 0 ? 0 : ids[static_cast<size_t>(t)];
        for (int64_t i = 0; i < dim; ++i) {
          ASSERT_EQ(got[static_cast<size_t>(t * dim + i)], 1.7f * ToFloat(table[static_cast<size_t>(id * dim + i)]));
        }
      }
    });
  }
}

struct NormCase {
  int64_t dim, stride;
  bool layer, weight, bias;
};

TEST_P(RowsTest, NormRowsMatchesTheReference) {
  const int64_t tokens = 3;
  for (const NormCase& c : {NormCase{1, 1, false, true, false}, NormCase{7, 7, false, true, false},
                            NormCase{64, 64, false, false, false}, NormCase{1000, 1004, false, true, false},
                            NormCase{1028, 1028, false, true, true}, NormCase{4104, 4104, false, true, false},
                            NormCase{513, 520, true, true, true}, NormCase{1024, 1024, true, false, false},
                            NormCase{2052, 2052, true, true, false}, NormCase{300, 300, true, false, true}}) {
    SCOPED_TRACE(testing::Message() << c.dim << " " << c.stride << " " << c.layer << c.weight << c.bias);
    std::vector<float> x = Normals(tokens * c.stride, 1, 3.0), dense;
    for (float& v : x) v += 1.5f;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < c.dim; ++i) dense.push_back(x[static_cast<size_t>(t * c.stride + i)]);
    }
    const std::vector<float> weight = Normals(c.dim, 2), bias = Normals(c.dim, 3);
    std::vector<float> want(dense.size());
    const float* const w = c.weight ? weight.data() : nullptr;
    if (c.layer) {
      ref().layer_norm(pool_, dense.data(), tokens, c.dim, w, c.bias ? bias.data() : nullptr, 0.01f, want.data());
    } else {
      ref().rms_norm(pool_, dense.data(), tokens, c.dim, w, 0.01f, want.data());
    }
    const Buffer<float> in(x), weights(weight), biases(bias);
    ForTypes([&](auto value) {
      using T = decltype(value);
      const Buffer<T> out(tokens * c.dim);
      NormRows(stream(), {.x = in.data(),
                          .x_stride = c.stride,
                          .tokens = tokens,
                          .dim = c.dim,
                          .layer = c.layer,
                          .weight = c.weight ? weights.data() : nullptr,
                          .bias = c.bias ? biases.data() : nullptr,
                          .eps = 0.01f,
                          .out = out.data(),
                          .out_type = RealOf<T>()});
      ExpectNear(out.Read(), {want.begin(), want.end()}, 2e-6);
    });
  }
}

TEST_P(RowsTest, NormRowsWorksInPlaceAndRowByRow) {
  for (const int64_t dim : {96, 1544}) {
    const std::vector<float> x = Normals(5 * dim, 4);
    const Buffer<float> all(x), one(Part(x, 3 * dim, dim));
    NormRows(stream(), {.x = all.data(), .tokens = 5, .dim = dim, .out = all.data()});
    NormRows(stream(), {.x = one.data(), .tokens = 1, .dim = dim, .out = one.data()});
    std::vector<float> want(x.size());
    ref().rms_norm(pool_, x.data(), 5, dim, nullptr, 1e-5f, want.data());
    ExpectNear(all.Read(), {want.begin(), want.end()}, 2e-6);
    EXPECT_TRUE(SameBits(one.Read(), Part(all.Read(), 3 * dim, dim)));
  }
}

TEST_P(RowsTest, NormTypedMatchesTheReference) {
  for (const int64_t dim : {5, 128, 1032, 2000}) {
    ForTypes([&](auto value) {
      using T = decltype(value);
      SCOPED_TRACE(dim);
      const std::vector<T> x = Rounded<T>(Normals(2 * dim, 5, 4.0));
      const std::vector<float> weight = Normals(dim, 6), in = Floats(x);
      std::vector<float> want(in.size());
      const Buffer<T> rows(x);
      const Buffer<float> weights(weight);
      NormTyped(stream(), rows.data(), RealOf<T>(), 2, dim, weights.data(), 1e-6f);
      ref().rms_norm(pool_, in.data(), 2, dim, weight.data(), 1e-6f, want.data());
      ExpectNear(rows.Read(), {want.begin(), want.end()}, 1e-6);
    });
  }
}

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluErf, Activation::kGeluTanh,
                                       Activation::kRelu, Activation::kRelu2,   Activation::kClampedSwiglu};

// n - 9 random values, and special ones.
std::vector<float> Gates(int64_t n) {
  std::vector<float> gates = Normals(n - 9, 7, 4.0);
  for (const float v : {0.0f, -0.0f, 1e-6f, -1e-6f, 30.0f, -30.0f, 7.0f, 7.5f, -5.5f}) gates.push_back(v);
  return gates;
}

TEST_P(RowsTest, ActivateMatchesTheReference) {
  enum Up { kNone, kSame, kF32 };
  for (const int64_t n : {2056, 301}) {
    ForTypes([&](auto value) {
      using T = decltype(value);
      const std::vector<T> gate = Rounded<T>(Gates(n)), up = Rounded<T>(Normals(n, 8, 5.0));
      const std::vector<float> up_f32 = Normals(n, 9, 5.0), g = Floats(gate), u = Floats(up);
      for (const Activation f : kActivations) {
        for (const Up kind : {kNone, kSame, kF32}) {
          SCOPED_TRACE(testing::Message() << n << " activation " << static_cast<int>(f) << " up " << kind);
          const Buffer<T> in(gate), same(up), out(n);
          const Buffer<float> other(up_f32);
          const void* const factor = kind == kNone   ? nullptr
                                     : kind == kSame ? static_cast<void*>(same.data())
                                                     : other.data();
          Activate(stream(), {.f = f,
                              .gate = in.data(),
                              .up = factor,
                              .up_f32 = kind == kF32,
                              .type = RealOf<T>(),
                              .tokens = 1,
                              .dim = n,
                              .out = out.data()});
          std::vector<float> want(g.size());
          ref().activate(pool_, f, g.data(),
                         kind == kNone   ? nullptr
                         : kind == kSame ? u.data()
                                         : up_f32.data(),
                         n, want.data());
          ExpectNear(out.Read(), {want.begin(), want.end()}, std::is_same_v<T, f16> ? 4e-8 : 1e-9, ToleranceOf<T>());
        }
      }
    });
  }
}

TEST_P(RowsTest, ActivateWorksInPlace) {
  const Buffer<bf16> gate(Rounded<bf16>(Normals(800, 1))), up(Rounded<bf16>(Normals(800, 2))), out(800);
  ActivateCall call{.gate = gate.data(), .up = up.data(), .tokens = 4, .dim = 200, .out = out.data()};
  Activate(stream(), call);
  call.out = gate.data();
  Activate(stream(), call);
  EXPECT_TRUE(SameBits(gate.Read(), out.Read()));
}

// Gate and up in the rows of one product, as two matrices of rows one after another.
TEST_P(RowsTest, ActivateOfRowsApartHasTheBitsOfRowsOneAfterAnother) {
  for (const int64_t dim : {40, 2056, 13}) {
    SCOPED_TRACE(dim);
    constexpr int64_t kTokens = 3;
    const std::vector<bf16> both = Rounded<bf16>(Normals(kTokens * 2 * dim, 3));
    std::vector<bf16> gates, ups;
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto row = both.begin() + t * 2 * dim;
      gates.insert(gates.end(), row, row + dim);
      ups.insert(ups.end(), row + dim, row + 2 * dim);
    }
    const Buffer<bf16> product(both), gate(gates), up(ups), apart(kTokens * dim), together(kTokens * dim);
    Activate(stream(), {.gate = product.data(),
                        .up = product.data() + dim,
                        .stride = 2 * dim,
                        .tokens = kTokens,
                        .dim = dim,
                        .out = apart.data()});
    Activate(stream(), {.gate = gate.data(), .up = up.data(), .tokens = kTokens, .dim = dim, .out = together.data()});
    EXPECT_TRUE(SameBits(apart.Read(), together.Read()));
  }
}

TEST_P(RowsTest, CutGateLeavesWhatExceedsTheCutoff) {
  for (const int64_t dim : {9, 2048, 2600}) {
    ForTypes([&](auto value) {
      using T = decltype(value);
      SCOPED_TRACE(dim);
      const std::vector<T> gate = Rounded<T>(Normals(2 * dim, 10, 2.0));
      const std::vector<float> x = Floats(gate);
      const Buffer<T> rows(gate);
      CutGate(stream(), rows.data(), RealOf<T>(), 2, dim, 0.8f);
      std::vector<double> want;
      for (int64_t t = 0; t < 2; ++t) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < dim; ++i) sum += double{x[static_cast<size_t>(t * dim + i)]};
        const double mean = sum / static_cast<double>(dim);
        for (int64_t i = 0; i < dim; ++i) squares += std::pow(double{x[static_cast<size_t>(t * dim + i)]} - mean, 2);
        const double least = mean + std::sqrt(squares / static_cast<double>(dim)) * double{0.8f};
        for (int64_t i = 0; i < dim; ++i) {
          want.push_back(std::max(double{x[static_cast<size_t>(t * dim + i)]} - least, 0.0));
        }
      }
      ExpectNear(rows.Read(), want, 4e-6);
    });
  }
}

TEST_P(RowsTest, AddRowsRoundsOnce) {
  for (const int64_t n : {1, 1023, 1028}) {
    const std::vector<float> x = Normals(n, 11), y = Normals(n, 12);
    const Buffer<float> to(x), from(y);
    AddRows(stream(), to.data(), from.data(), 0.7f, n);
    std::vector<float> want = x;
    for (size_t i = 0; i < want.size(); ++i) want[i] = std::fma(0.7f, y[i], x[i]);
    EXPECT_TRUE(SameBits(to.Read(), want)) << n;
  }
}

TEST_P(RowsTest, ScaleRowsMatchesTheReference) {
  for (const float softcap : {0.0f, 2.5f}) {
    for (const int64_t n : {1, 515, 1028}) {
      std::vector<float> x = Normals(n, 13, 10.0);
      const Buffer<float> rows(x);
      ScaleRows(stream(), rows.data(), 0.3f, softcap, n);
      ref().scale(pool_, x.data(), 0.3f, softcap, n);
      ExpectNear(rows.Read(), {x.begin(), x.end()});
    }
  }
}

TEST_P(RowsTest, ConvertRowsRounds) {
  for (const int64_t n : {3, 2056, 2061}) {
    ForTypes([&](auto value) {
      using T = decltype(value);
      const std::vector<float> x = Normals(n, 14);
      const Buffer<float> from(x);
      const Buffer<T> to(n);
      ConvertRows(stream(), from.data(), n, RealOf<T>(), to.data());
      EXPECT_TRUE(SameBits(to.Read(), Rounded<T>(x))) << n;
    });
  }
}

struct CopyCase {
  int64_t dim, from_stride, to_stride;
  int32_t value_bytes;
};

TEST_P(RowsTest, CopyRowsTakesRowsAndKeepsTheRest) {
  const std::vector<int32_t> chosen = {3, 0, 3, 2};
  for (const CopyCase& c : {CopyCase{64, 64, 64, 2}, CopyCase{100, 104, 100, 4}, CopyCase{33, 40, 35, 2},
                            CopyCase{600, 608, 1216, 4}, CopyCase{17, 17, 20, 1}, CopyCase{31, 32, 33, 4}}) {
    for (const bool gathers : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.dim << " of " << c.value_bytes << " bytes, gathers " << gathers);
      std::vector<uint8_t> from(static_cast<size_t>(4 * c.from_stride * c.value_bytes));
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 37 + i / 256);
      std::vector<uint8_t> want(static_cast<size_t>(4 * c.to_stride * c.value_bytes), 0xee);
      const Buffer<uint8_t> source(from), target(want);
      const Buffer<int32_t> rows(chosen);
      CopyRows(stream(), source.data(), c.from_stride, gathers ? rows.data() : nullptr, 4, c.dim, c.value_bytes,
               target.data(), c.to_stride);
      for (int64_t t = 0; t < 4; ++t) {
        const int64_t row = gathers ? chosen[static_cast<size_t>(t)] : t;
        std::copy_n(from.begin() + row * c.from_stride * c.value_bytes, c.dim * c.value_bytes,
                    want.begin() + t * c.to_stride * c.value_bytes);
      }
      EXPECT_EQ(target.Read(), want);
    }
  }
}

TEST_P(RowsTest, PredictStreamsAddsTheOtherStreams) {
  for (const int64_t n : {2, 4, 8}) {
    for (const int64_t dim : {5, 300}) {
      const int64_t tokens = 3;
      const std::vector<float> x = Normals(tokens * n * dim, 15), c = Normals(tokens * n * n, 16);
      const Buffer<float> streams(x), coefficients(c), active(tokens * dim);
      PredictStreams(stream(), {.streams = streams.data(),
                                .active = active.data(),
                                .coefficients = coefficients.data(),
                                .tokens = tokens,
                                .n = n,
                                .dim = dim});
      std::vector<double> want, first;
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t d = 0; d < dim; ++d) {
            double sum = x[static_cast<size_t>((t * n + i) * dim + d)];
            for (int64_t k = 0; k < n; ++k) {
              sum +=
                  double{c[static_cast<size_t>((t * n + i) * n + k)]} * x[static_cast<size_t>((t * n + k) * dim + d)];
            }
            want.push_back(sum);
            if (i == 0) first.push_back(sum);
          }
        }
      }
      ExpectNear(streams.Read(), want, 1e-5);
      ExpectNear(active.Read(), first, 1e-5);
    }
  }
}

TEST_P(RowsTest, CorrectStreamsMovesAllStreams) {
  for (const int64_t n : {2, 4, 8}) {
    for (const int64_t dim : {5, 300}) {
      const int64_t tokens = 3;
      const std::vector<float> x = Normals(tokens * n * dim, 17), c = Normals(tokens * n, 18);
      const std::vector<float> hidden = Normals(tokens * dim, 19), scale = Normals(dim, 20);
      const Buffer<float> streams(x), coefficients(c), active(hidden), scales(scale);
      CorrectStreams(stream(), {.streams = streams.data(),
                                .active = active.data(),
                                .coefficients = coefficients.data(),
                                .scale = scales.data(),
                                .tokens = tokens,
                                .n = n,
                                .dim = dim});
      std::vector<double> want, first;
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t d = 0; d < dim; ++d) {
            const double change =
                double{hidden[static_cast<size_t>(t * dim + d)]} - x[static_cast<size_t>(t * n * dim + d)];
            const double sum =
                x[static_cast<size_t>((t * n + i) * dim + d)] + change * (c[static_cast<size_t>(t * n + i)] + 1.0);
            want.push_back(sum);
            if (i == 0) first.push_back(sum * scale[static_cast<size_t>(d)]);
          }
        }
      }
      ExpectNear(streams.Read(), want, 1e-5);
      ExpectNear(active.Read(), first, 1e-5);
    }
  }
}

TEST_P(RowsTest, CallsWithoutTokensDoNothing) {
  const Buffer<float> x(std::vector<float>(8, 1.0f)), weight(std::vector<float>(8, 2.0f));
  NormRows(stream(), {.x = x.data(), .tokens = 0, .dim = 8, .out = x.data()});
  NormTyped(stream(), x.data(), Real::kF32, 0, 8, weight.data(), 0.0f);
  Activate(stream(), {.gate = x.data(), .type = Real::kF32, .tokens = 0, .dim = 8, .out = x.data()});
  CutGate(stream(), x.data(), Real::kF32, 0, 8, 0.0f);
  AddRows(stream(), x.data(), weight.data(), 1.0f, 0);
  ScaleRows(stream(), x.data(), 2.0f, 0.0f, 0);
  ConvertRows(stream(), weight.data(), 0, Real::kF32, x.data());
  CopyRows(stream(), weight.data(), 8, nullptr, 0, 8, 4, x.data(), 8);
  EXPECT_EQ(x.Read(), std::vector<float>(8, 1.0f));
}

}  // namespace
}  // namespace tactus::compute::cuda::rows_test
