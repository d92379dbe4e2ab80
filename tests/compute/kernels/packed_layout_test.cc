// Every layout that compute/kernels/packed/packed.h allows, filled without a packer: all sets compute ref's result, bit
// for bit, and ref's integers do not overflow for the largest codes and tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compute/kernels/packed_layouts.h"

namespace tactus::compute::packed_layout_test {
namespace {

using namespace testing;

std::string What(const Ops* ops, const Layout& layout, Rounding rounding) {
  return std::string(ops->name) + ", " + layout.name() + ", " + NameOf(rounding);
}

// Tokens with the largest sums: all values at the limit, at its opposite, or alternating. With wide groups, the first
// of each has values 256 times as large, then values of the largest bytes (32512 = 127 * 256; 32384 is 127 and -128,
// -32385 is -127 and 127).
std::vector<float> ExtremeTokens(int64_t cols, int32_t wide) {
  constexpr float kCodes[][2] = {{32512, 32512}, {-32512, -32512}, {32512, -32512},
                                 {32384, 32384}, {-32385, -32385}, {32384, -32385}};
  std::vector<float> x;
  for (const auto& codes : kCodes) {
    for (int64_t c = 0; c < cols; ++c) {
      const bool narrow = wide == 0 || c % wide >= kWideColumns;
      x.push_back(!narrow ? codes[c % 2] : codes[c % 2] < 0 ? -127.0f : 127.0f);
    }
  }
  return x;
}
constexpr int64_t kExtremeTokens = 6;

TEST(PackedLayout, ExtremeTokensHaveExtremeValues) {
  ThreadPool pool(1, SystemClock());
  const std::vector<float> x = ExtremeTokens(256, 32);
  OwnedTokens packed({TokenValues::kInt8, 32, 32}, kExtremeTokens, 256);
  Pack(*SelectOps("ref"), pool, x, packed.view);
  constexpr int32_t kWide[] = {32512, -32512, 32512, 32384, -32385, 32384};
  for (const int64_t c : {0, 128, 130}) {
    for (int64_t t = 0; t < kExtremeTokens; ++t) EXPECT_EQ(RowValue(packed.view, t, c), kWide[t]) << t;
    EXPECT_EQ(RowValue(packed.view, 0, c + 8), 127);
    EXPECT_EQ(RowValue(packed.view, 1, c + 8), -127);
  }
}

// Against 64-bit sums and double: an integer that wrapped would be far off.
TEST(PackedLayout, RefDoesNotOverflow) {
  ThreadPool pool(1, SystemClock());
  const int64_t rows = 64;
  double largest = 0;
  for (const Layout& layout : AllLayouts()) {
    const LaidOut w(layout, rows, 300, Fill::kExtreme, 301);
    const int64_t cols = w.form.cols;
    for (const Rounding rounding : kIntegerRoundings) {
      const TokenFormat format = TokensFor(w.form, rounding);
      const std::vector<float> x = ExtremeTokens(cols, format.wide);
      OwnedTokens in(format, kExtremeTokens, cols);
      Pack(*SelectOps("ref"), pool, x, in.view);
      const std::vector<float> y = RunPacked(*SelectOps("ref"), pool, x.data(), kExtremeTokens, w.form, rounding);
      for (int64_t t = 0; t < kExtremeTokens; ++t) {
        for (int64_t n = 0; n < rows; ++n) {
          double want = 0, magnitude = 0, block = 0;
          for (int64_t c = 0; c < cols; ++c) {
            const int64_t b = layout.block > 0 ? c / layout.block : 0;
            const double v = ValueAt(w.form, n, c), q = TokenValue(in.view, t, c);
            const double product = (ScaleAt(w.form, n, b) * v + MinimumAt(w.form, n, b)) * q;
            want += product;
            magnitude += std::fabs(ScaleAt(w.form, n, b) * v * q) + std::fabs(MinimumAt(w.form, n, b) * q);
            const double own = v * RowValue(in.view, t * format.parts, c);
            block = c % (layout.block > 0 ? layout.block : kTokenBlock) == 0 ? own : block + own;
            largest = std::fmax(largest, std::fabs(block));
          }
          ASSERT_NEAR(y[t * rows + n], want, 16 * 0x1p-24 * magnitude) << What(SelectOps("ref"), layout, rounding);
        }
      }
    }
  }
  EXPECT_GT(largest, 0.98 * 128 * 4 * (4 * 32512 + 28 * 127));  // the test reaches the bound
}

TEST(PackedLayout, EverySetAgreesWithRefAtTheExtremes) {
  ThreadPool pool(2, SystemClock());
  const int64_t rows = 70;
  for (const Layout& layout : AllLayouts()) {
    const LaidOut w(layout, rows, 300, Fill::kExtreme, 302);
    for (const Rounding rounding : kIntegerRoundings) {
      const std::vector<float> x = ExtremeTokens(w.form.cols, TokensFor(w.form, rounding).wide);
      const std::vector<float> want = RunPacked(*SelectOps("ref"), pool, x.data(), kExtremeTokens, w.form, rounding);
      for (const Ops* ops : OwnSets()) {
        const std::vector<float> got = RunPacked(*ops, pool, x.data(), kExtremeTokens, w.form, rounding);
        EXPECT_TRUE(SameBits(got.data(), want.data(), kExtremeTokens * rows)) << What(ops, layout, rounding);
      }
    }
  }
}

// Single tokens, tiles of any height with any remainder, and enough tokens for codes to be widened once for all of
// them; columns that end within a block, within a token block and at its end.
TEST(PackedLayout, EverySetAgreesWithRefForAnyTokens) {
  struct Size {
    int64_t cols, tokens;
  };
  ThreadPool pool(2, SystemClock());
  const int64_t rows = 70;
  for (const Layout& layout : AllLayouts()) {
    for (const Size size : {Size{20, 9}, Size{300, MostTokens(50)}, Size{512, 7}}) {
      const LaidOut w(layout, rows, size.cols, Fill::kRandom, 303);
      const std::vector<float> x = RandomTokens(size.tokens, w.form.cols, 304);
      for (const Rounding rounding : kIntegerRoundings) {
        const std::vector<float> want = RunPacked(*SelectOps("ref"), pool, x.data(), size.tokens, w.form, rounding);
        for (const Ops* ops : OwnSets()) {
          for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 13, 29, 50}) {
            if (tokens > size.tokens) break;
            const std::vector<float> got = RunPacked(*ops, pool, x.data(), tokens, w.form, rounding);
            EXPECT_TRUE(SameBits(got.data(), want.data(), tokens * rows))
                << What(ops, layout, rounding) << ", " << w.form.cols << " columns, " << tokens << " tokens";
          }
        }
      }
    }
  }
}

// Codes converted to f32: within a few ulp of the summed magnitudes.
TEST(PackedLayout, EverySetMultipliesUnroundedTokens) {
  ThreadPool pool(2, SystemClock());
  const int64_t rows = 70, tokens = 9;
  for (const Layout& layout : AllLayouts()) {
    const LaidOut w(layout, rows, 300, Fill::kRandom, 307);
    const int64_t cols = w.form.cols;
    const std::vector<float> x = RandomTokens(tokens, cols, 308);
    std::vector<float> weights(static_cast<size_t>(rows * cols));
    for (int64_t n = 0; n < rows; ++n) UnpackRow(w.form, n, weights.data() + n * cols);
    for (const Ops* ops : RunnableOps()) {
      const std::vector<float> got = RunPacked(*ops, pool, x.data(), tokens, w.form, Rounding::kNone);
      for (int64_t i = 0; i < tokens * rows; ++i) {
        double want = 0, magnitude = 0;
        for (int64_t c = 0; c < cols; ++c) {
          const double product = static_cast<double>(x[i / rows * cols + c]) * weights[i % rows * cols + c];
          want += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(got[i], want, 4 * std::sqrt(static_cast<double>(cols)) * 0x1p-24 * magnitude)
            << What(ops, layout, Rounding::kNone) << " token " << i / rows << " row " << i % rows;
      }
    }
  }
}

TEST(PackedLayout, BlocksOfZerosAddNothingAndNaNPropagates) {
  ThreadPool pool(1, SystemClock());
  const int64_t rows = 20, cols = 384, tokens = 5;
  std::vector<float> x = RandomTokens(tokens, cols, 305), rest = x;
  for (int64_t c = 128; c < 256; ++c) x[c] = rest[c] = 0;                         // token 0: a block of zeros
  for (int64_t c = 128; c < 256; ++c) x[cols + c] = c % 2 == 0 ? 1e-33f : -0.0f;  // token 1: values that count as zero
  for (int64_t c = 128; c < 256; ++c) rest[cols + c] = 0;
  x[2 * cols + 7] = INFINITY;
  x[3 * cols + 300] = NAN;
  for (const Layout& layout : AllLayouts()) {
    const LaidOut w(layout, rows, cols, Fill::kRandom, 306);
    for (const Rounding rounding : kIntegerRoundings) {
      for (const Ops* ops : RunnableOps()) {
        const std::vector<float> y = RunPacked(*ops, pool, x.data(), tokens, w.form, rounding);
        const std::vector<float> plain = RunPacked(*ops, pool, rest.data(), tokens, w.form, rounding);
        for (const int64_t t : {0, 1, 4}) {
          EXPECT_TRUE(SameBits(y.data() + t * rows, plain.data() + t * rows, rows)) << What(ops, layout, rounding) << t;
        }
        for (int64_t i = 2 * rows; i < 4 * rows; ++i) {
          ASSERT_TRUE(std::isnan(y[i])) << What(ops, layout, rounding) << " token " << i / rows;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tactus::compute::packed_layout_test
