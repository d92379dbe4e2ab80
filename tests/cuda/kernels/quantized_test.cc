// Products with matrices of all formats, against sums in f64, and the same bits for any number of tokens.
#include "compute/cuda/kernels/product.h"
#include "cuda/kernels/product_cases.h"

namespace tactus::compute::cuda {
namespace {

constexpr Real kTypes[] = {Real::kBF16, Real::kF16, Real::kF32};

class QuantizedTest : public DeviceTest {
 protected:
  // Values of y for tokens x, whose rows are `stride` apart and start with `before`.
  std::vector<float> Multiply(ProductCall call, const std::vector<float>& x, const std::vector<float>& bias,
                              const std::vector<float>& before) {
    const Buffer<uint8_t> tokens(BytesOf(call.type, x)), y(BytesOf(call.y_type, before));
    const Buffer<float> biases(bias.empty() ? std::vector<float>(1) : bias);
    call.x = tokens.data();
    call.y = y.data();
    if (!bias.empty()) call.bias = biases.data();
    MultiplyQuantized(stream(), call);
    return ValuesOf(call.y_type, y.Read());
  }

  // y of `tokens` tokens against the sums in f64.
  void Check(const MatrixCase& c, Real type, int64_t tokens) {
    SCOPED_TRACE(NameOf(c) + ", type " + std::to_string(static_cast<int>(type)) + ", " + std::to_string(tokens));
    const TestMatrix w(stream(), c, type, 1);
    std::vector<float> x = Numbers(2).Take(tokens * c.cols);
    for (float& v : x) v = RoundTo(type, v);
    const std::vector<float> y =
        Multiply({.type = type, .tokens = tokens, .w = w.device(), .y_type = type, .y_stride = c.rows}, x, {},
                 std::vector<float>(static_cast<size_t>(tokens * c.rows)));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < c.rows; ++r) {
        const Expected want = Dot(w, &x[static_cast<size_t>(t * c.cols)], r, c.cols);
        ASSERT_NEAR(y[static_cast<size_t>(t * c.rows + r)], want.value,
                    want.error + std::abs(want.value) * 1.01 * RoundingOf(type))
            << "token " << t << ", row " << r;
      }
    }
  }
};
TACTUS_DEVICE_TESTS(QuantizedTest);

// Every format, with columns that fill no step, and rows that fill no tile.
std::vector<MatrixCase> AllFormats() {
  std::vector<MatrixCase> cases = {{MatrixFormat::kReal, 37, 72, 0, false},
                                   {MatrixFormat::kFp8, 37, 80, 80, false},
                                   {MatrixFormat::kFp8, 21, 48, 0, false}};
  for (const MatrixFormat format : {MatrixFormat::kInt8, MatrixFormat::kInt4}) {
    for (const bool offsets : {false, true}) {
      cases.push_back({format, 37, 80, 16, offsets});
      cases.push_back({format, 37, 96, 32, offsets});
      cases.push_back({format, 18, 192, 64, offsets});
      cases.push_back({format, 18, 256, 128, offsets});
      cases.push_back({format, 37, 72, 72, offsets});
    }
  }
  return cases;
}

TEST_P(QuantizedTest, EveryFormatMultipliesAsItsValues) {
  for (const MatrixCase& c : AllFormats()) {
    for (const Real type : kTypes) Check(c, type, 3);
  }
}

TEST_P(QuantizedTest, LongRowsAreCutIntoSlices) {
  for (const Real type : kTypes) {
    Check({MatrixFormat::kInt4, 16, 2176, 128, true}, type, 2);  // 34 steps: slices of 5, the last of 4
    Check({MatrixFormat::kReal, 16, 1160, 0, false}, type, 2);   // 19 steps, the last of 8 columns
    Check({MatrixFormat::kInt8, 5, 832, 32, false}, type, 1);
    Check({MatrixFormat::kFp8, 5, 528, 528, false}, type, 1);
  }
}

TEST_P(QuantizedTest, ShortestRowsMultiply) {
  for (const Real type : kTypes) {
    Check({MatrixFormat::kReal, 1, 8, 0, false}, type, 1);
    Check({MatrixFormat::kInt4, 1, 8, 8, false}, type, 1);
    Check({MatrixFormat::kInt8, 3, 32, 32, true}, type, 9);
    Check({MatrixFormat::kInt4, 3, 16, 16, true}, type, 9);
    Check({MatrixFormat::kFp8, 1, 16, 16, false}, type, 1);
  }
}

// The product with a row of zeros and a 1 is a code times its scale, exactly.
TEST_P(QuantizedTest, EveryCodeIsExact) {
  constexpr int64_t kCols = 256;
  std::vector<float> x(static_cast<size_t>(kCols * kCols));
  for (int64_t i = 0; i < kCols; ++i) x[static_cast<size_t>(i * kCols + i)] = 1.0f;
  for (const Real type : {Real::kBF16, Real::kF16}) {
    for (const MatrixCase& c : std::vector<MatrixCase>{{MatrixFormat::kInt8, 8, kCols, 16, false},
                                                       {MatrixFormat::kInt8, 8, kCols, 64, true},
                                                       {MatrixFormat::kInt4, 8, kCols, 16, false},
                                                       {MatrixFormat::kInt4, 8, kCols, 32, false},
                                                       {MatrixFormat::kInt4, 8, kCols, 128, false},
                                                       {MatrixFormat::kFp8, 8, kCols, kCols, false},
                                                       {MatrixFormat::kReal, 8, kCols, 0, false}}) {
      SCOPED_TRACE(NameOf(c));
      const TestMatrix w(stream(), c, type, 3);
      const std::vector<float> y =
          Multiply({.type = type, .tokens = kCols, .w = w.device(), .y_type = Real::kF32, .y_stride = c.rows}, x, {},
                   std::vector<float>(static_cast<size_t>(kCols * c.rows)));
      for (int64_t t = 0; t < kCols; ++t) {
        for (int64_t r = 0; r < c.rows; ++r) {
          ASSERT_EQ(y[static_cast<size_t>(t * c.rows + r)], static_cast<float>(w.Value(r, t))) << t << " " << r;
        }
      }
    }
  }
}

TEST_P(QuantizedTest, OutputsHaveBiasStrideAndSum) {
  constexpr int64_t kTokens = 5, kRows = 37, kCols = 96, kStride = 41;
  const MatrixCase c = {MatrixFormat::kInt4, kRows, kCols, 32, true};
  const std::vector<float> bias = Numbers(5).Take(kRows), before = Numbers(6).Take(kTokens * kStride);
  for (const Real type : kTypes) {
    const TestMatrix w(stream(), c, type, 4);
    std::vector<float> x = Numbers(7).Take(kTokens * kCols);
    for (float& v : x) v = RoundTo(type, v);
    for (const bool adds : {false, true}) {
      const std::vector<float> y = Multiply(
          {.type = type, .tokens = kTokens, .w = w.device(), .y_type = Real::kF32, .y_stride = kStride, .adds = adds},
          x, bias, before);
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t i = 0; i < kStride; ++i) {
          const auto at = static_cast<size_t>(t * kStride + i);
          if (i >= kRows) {
            ASSERT_EQ(y[at], before[at]) << "behind the rows";
            continue;
          }
          const Expected want = Dot(w, &x[static_cast<size_t>(t * kCols)], i, kCols);
          const double value = want.value + bias[static_cast<size_t>(i)] + (adds ? before[at] : 0.0f);
          ASSERT_NEAR(y[at], value, want.error + 1e-6) << t << " " << i;
        }
      }
    }
  }
}

// Every tile of tokens gives the bits that a token has alone.
TEST_P(QuantizedTest, BitsDoNotDependOnTheNumberOfTokens) {
  constexpr int64_t kTokens = 131, kRows = 37;
  for (const MatrixCase& c : std::vector<MatrixCase>{{MatrixFormat::kInt4, kRows, 384, 128, true},
                                                     {MatrixFormat::kInt4, kRows, 176, 16, true},
                                                     {MatrixFormat::kInt8, kRows, 160, 32, true},
                                                     {MatrixFormat::kInt8, kRows, 72, 72, false},
                                                     {MatrixFormat::kFp8, kRows, 400, 400, false},
                                                     {MatrixFormat::kReal, kRows, 200, 0, false}}) {
    SCOPED_TRACE(NameOf(c));
    const Real type = c.group == 16 || c.group == 400 ? Real::kF16 : Real::kBF16;
    const TestMatrix w(stream(), c, type, 8);
    const Buffer<uint8_t> x(BytesOf(type, Numbers(9).Take(kTokens * c.cols)));
    const Buffer<float> bias(Numbers(10).Take(kRows));
    ProductArgs args = ArgsOf(w.device());
    args.x = x.data();
    args.bias = bias.data();
    args.y_stride = kRows;
    args.y_float = true;
    const auto multiply = [&](int64_t first, int64_t tokens, TokenTiles tiles) {
      const Buffer<float> y(tokens * kRows);
      args.x = x.data() + first * c.cols * 2;
      args.y = y.data();
      args.tokens = static_cast<int32_t>(tokens);
      ProductShape shape = ShapeOf(w.device(), type, args, tokens);
      shape.tiles = tiles;
      LaunchProduct(stream(), shape, args);
      return y.Read();
    };
    const std::vector<float> all = multiply(0, kTokens, TokenTiles::k8);
    for (const TokenTiles tiles : {TokenTiles::k16, TokenTiles::k32, TokenTiles::k64, TokenTiles::k128}) {
      SCOPED_TRACE(static_cast<int>(tiles));
      ASSERT_EQ(multiply(0, kTokens, tiles), all);
    }
    for (const int64_t t : {0, 7, 8, 64, 130}) {
      const std::vector<float> one = multiply(t, 1, TokenTiles::k8);
      ASSERT_EQ(one, std::vector<float>(all.begin() + t * kRows, all.begin() + (t + 1) * kRows)) << t;
    }
  }
}

TEST_P(QuantizedTest, TilesFollowTheTokens) {
  ProductArgs args = ArgsOf({.rows = 4096, .cols = 64});
  const auto tiles = [&](int64_t rows, int64_t tokens) {
    args.tokens = static_cast<int32_t>(tokens);
    return ShapeOf({.rows = rows, .cols = 64}, Real::kBF16, args, tokens).tiles;
  };
  EXPECT_EQ(tiles(4096, 8), TokenTiles::k8);
  EXPECT_EQ(tiles(4096, 9), TokenTiles::k16);
  EXPECT_EQ(tiles(4096, 17), TokenTiles::k32);
  EXPECT_EQ(tiles(4096, 33), TokenTiles::k64);
  EXPECT_EQ(tiles(128 * 50, 129), TokenTiles::k128);
  EXPECT_EQ(tiles(128 * 50, 128), TokenTiles::k64);  // too few blocks of the large tile
}

TEST_P(QuantizedTest, RepackingKeepsWhatNeedsNone) {
  const DeviceMatrix real = {.rows = 3, .cols = 8, .data = &real};
  EXPECT_EQ(RepackedBytes(real), 0);
  EXPECT_EQ(Repack(stream(), real, nullptr).data, real.data);
  // 2 row tiles, 2 steps, 4 groups in 2 steps; scales and offsets.
  const DeviceMatrix codes = {.format = MatrixFormat::kInt4, .rows = 17, .cols = 96, .group = 32, .offsets = &codes};
  EXPECT_EQ(RepackedBytes(codes), 2 * 2 * 512 + 2 * (2 * 4 * 16 * 2));
}

TEST_P(QuantizedTest, NoTokensLaunchNothing) {
  const TestMatrix w(stream(), {MatrixFormat::kInt4, 16, 64, 64, false}, Real::kBF16, 13);
  stream().Synchronize();
  const int64_t before = emulator::CurrentCounts().launches;
  MultiplyQuantized(stream(), {.tokens = 0, .w = w.device(), .y_stride = 16});
  stream().Synchronize();
  EXPECT_EQ(emulator::CurrentCounts().launches, before);
}

}  // namespace
}  // namespace tactus::compute::cuda
