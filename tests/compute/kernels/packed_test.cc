// The contents of packed weights and packed tokens. Their operators: packed_linear_test.cc.
#include "compute/kernels/packed/packed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compute/kernels/packed_testing.h"
#include "compute/tensor/dequantize.h"

namespace tactus::compute {
namespace {

using namespace testing;
using testing::RowOf;  // beside the one for rows

std::vector<float> RowOf(const MatrixView& w, int64_t row) {
  std::vector<float> out(static_cast<size_t>(w.cols));
  Dequantize(w.dtype, static_cast<const std::byte*>(w.data) + row * w.row_bytes, w.cols, out.data());
  return out;
}

std::vector<int64_t> WidthsOf(DType dtype) {
  const int64_t block = InfoOf(dtype).block_elements;
  if (block == 1) return {1, 2, 7, 64, 129, 576};
  if (block == 32) return {32, 96, 160, 576};
  return {256, 1536};
}

TEST(PackedWeights, HoldEveryFormatExactly) {
  for (DType dtype : kAllDTypes) {
    for (int64_t cols : WidthsOf(dtype)) {
      for (int64_t rows : {1, 63, 64, 65, 130}) {
        const OwnedMatrix w = RandomMatrix(dtype, rows, cols, 5);
        const OwnedPacked packed(w.view, Form{dtype}.at(rows, cols));
        for (int64_t r = 0; r < rows; ++r) {
          const std::vector<float> want = RowOf(w.view, r);
          const std::vector<float> got = RowOf(packed.form, r);
          ASSERT_TRUE(SameBits(want.data(), got.data(), cols))
              << InfoOf(dtype).name << " " << rows << " x " << cols << " row " << r;
        }
      }
    }
  }
}

// Powers of two far beyond f16's.
TEST(PackedWeights, HoldEveryExponentOfMxfp4) {
  const int64_t rows = 64, cols = 4 * 32;
  OwnedMatrix w = RandomMatrix(DType::kMXFP4, rows, cols, 11);
  for (int64_t i = 0; i < rows * cols / 32; ++i) w.bytes[1 + i * 17] = static_cast<std::byte>(i);
  const OwnedPacked packed(w.view, Form{DType::kMXFP4}.at(rows, cols));
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_TRUE(SameBits(RowOf(w.view, r).data(), RowOf(packed.form, r).data(), cols)) << "exponents from " << 4 * r;
  }
}

TEST(PackedWeights, RoundToBf16FromEveryFormat) {
  for (DType dtype : kAllDTypes) {
    const int64_t rows = 70, cols = WidthsOf(dtype).back();
    const OwnedMatrix w = RandomMatrix(dtype, rows, cols, 5);
    const OwnedPacked packed(w.view, Form{.dtype = dtype, .to_bf16 = true}.at(rows, cols));
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<float> want = RowOf(w.view, r);
      for (float& v : want) v = BF16ToF32(F32ToBF16(v));
      const std::vector<float> got = RowOf(packed.form, r);
      ASSERT_TRUE(SameBits(want.data(), got.data(), cols)) << InfoOf(dtype).name << " row " << r;
    }
  }
}

// Every half-precision value: packing has its own conversion.
TEST(PackedWeights, EveryHalfRoundsToBf16AsDequantizeDoes) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const MatrixView w = {halves.data(), DType::kF16, 64, 1024, 2048};
  const OwnedPacked packed(w, Form{.dtype = DType::kF16, .to_bf16 = true}.at(64, 1024));
  for (int64_t r = 0; r < 64; ++r) {
    for (int64_t c = 0; c < 1024; ++c) {
      ASSERT_EQ(ValueAt(packed.form, r, c), F32ToBF16(F16ToF32(halves[r * 1024 + c]))) << r << " " << c;
    }
  }
}

TEST(PackedWeights, AnyPanelsAtATimeGiveTheSameBytes) {
  for (const Form& form : AllForms()) {
    const int64_t rows = 200, cols = form.width(256);
    const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 6);
    OwnedPacked whole(w.view, form.at(rows, cols));
    Aligned parts(whole.form.bytes());
    PackPanels(w.view, whole.form, 2, 2, parts.data() + 2 * whole.form.panel_bytes);
    PackPanels(w.view, whole.form, 1, 1, parts.data() + whole.form.panel_bytes);
    PackPanels(w.view, whole.form, 0, 1, parts.data());
    EXPECT_EQ(std::memcmp(parts.data(), whole.bytes.data(), static_cast<size_t>(whole.form.bytes())), 0) << form.name();
    const std::byte* end = whole.bytes.data() + whole.form.bytes();
    EXPECT_TRUE(std::all_of(end, end + 16, [](std::byte b) { return b == std::byte{0xa5}; }))
        << form.name() << " wrote beyond";
  }
}

// Rows that do not exist must add nothing: codes at zero and no scale, whatever the memory held.
TEST(PackedWeights, RowsBeyondTheLastAreZero) {
  for (const Form& form : AllForms()) {
    const int64_t rows = 65, cols = form.width(256);
    const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 7);
    const OwnedPacked packed(w.view, form.at(rows, cols));
    for (int64_t r : {65, 127}) {
      for (float v : RowOf(packed.form, r)) ASSERT_EQ(v, 0.0f) << form.name() << " row " << r;
    }
  }
}

TEST(PackedWeights, Q80AtLoadEqualsAQuantisedFile) {
  const int64_t rows = 70, cols = 320;
  const std::vector<float> x = RandomFloats(rows * cols, 8, 0.05f);
  const OwnedPacked at_load(ViewOf(x, rows, cols), Form{DType::kF32, Quantization::kQ8_0}.at(rows, cols));
  const OwnedMatrix file = RandomMatrix(DType::kQ8_0, rows, cols, 8);
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_TRUE(SameBits(RowOf(at_load.form, r).data(), RowOf(file.view, r).data(), cols)) << r;
  }
}

TEST(PackedWeights, Int8IsWithinHalfAStepOfEveryFloatFormat) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ6_K}) {
    const int64_t rows = 66, cols = dtype == DType::kQ6_K ? 512 : 333;
    const OwnedMatrix w = RandomMatrix(dtype, rows, cols, 9);
    const OwnedPacked packed(w.view, Form{dtype, Quantization::kInt8}.at(rows, cols));
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> want = RowOf(w.view, r), got = RowOf(packed.form, r);
      float largest = 0;
      for (float v : want) largest = std::fmax(largest, std::fabs(v));
      for (int64_t c = 0; c < cols; ++c)
        ASSERT_NEAR(got[c], want[c], largest / 254 * 1.0001f) << InfoOf(dtype).name << " " << r;
    }
  }
}

double ErrorOf(const std::vector<float>& x, const PackedMatrix& packed) {
  double error = 0, norm = 0;
  for (int64_t r = 0; r < packed.rows; ++r) {
    const std::vector<float> got = RowOf(packed, r);
    for (int64_t c = 0; c < packed.cols; ++c) {
      const double v = x[r * packed.cols + c], e = got[c] - v;
      error += e * e;
      norm += v * v;
    }
  }
  return std::sqrt(error / norm);
}

// The reason for the grid: a smaller error than with minima over the full range and than q4_0, which takes as many
// bits, where groups are not centred; only a few per cent more where they are.
TEST(PackedWeights, Int4IsNoWorseThanTheGridsOfAsManyBits) {
  const int64_t rows = 64, cols = 512;
  for (const float mean : {0.0f, 0.1f}) {
    std::vector<float> x = RandomFloats(rows * cols, 10, 0.05f);
    for (float& v : x) v += mean;
    const OwnedPacked int4(ViewOf(x, rows, cols), Form{DType::kF32, Quantization::kInt4}.at(rows, cols));
    std::vector<std::byte> file(static_cast<size_t>(rows * RowBytes(DType::kQ4_0, cols)));
    Quantize(DType::kQ4_0, x.data(), rows * cols, file.data());
    const MatrixView q4_0 = {file.data(), DType::kQ4_0, rows, cols, RowBytes(DType::kQ4_0, cols)};
    const OwnedPacked symmetric(q4_0, Form{DType::kQ4_0}.at(rows, cols));
    EXPECT_LT(int4.form.bytes(), symmetric.form.bytes());
    double full_range = 0, norm = 0;
    for (size_t g = 0; g < x.size(); g += 64) {
      const auto [low, high] = std::minmax_element(x.begin() + g, x.begin() + g + 64);
      const double step = (static_cast<double>(*high) - *low) / 15;
      for (size_t i = g; i < g + 64; ++i) {
        const double e = std::nearbyint((x[i] - *low) / step) * step + *low - x[i];
        full_range += e * e;
        norm += static_cast<double>(x[i]) * x[i];
      }
    }
    EXPECT_LT(ErrorOf(x, int4.form), (mean == 0.0f ? 1.03 : 0.9) * ErrorOf(x, symmetric.form)) << mean;
    EXPECT_LT(ErrorOf(x, int4.form), 0.97 * std::sqrt(full_range / norm)) << mean;
  }
}

TEST(PackedWeights, DegenerateGroupsSurviveQuantising) {
  const int64_t cols = 128;
  std::vector<float> x(4 * cols, 0.0f);
  for (int64_t c = 0; c < cols; ++c) x[cols + c] = 0.25f;                     // constant
  for (int64_t c = 0; c < cols; ++c) x[2 * cols + c] = c == 5 ? 3.0f : 0.0f;  // one value
  for (int64_t c = 0; c < cols; ++c) x[3 * cols + c] = c % 2 == 0 ? -1.0f : 1.0f;
  for (Quantization q : {Quantization::kQ8_0, Quantization::kInt8, Quantization::kInt4}) {
    const Form form = {DType::kF32, q};
    const OwnedPacked packed(ViewOf(x, 4, cols), form.at(4, cols));
    for (int64_t r = 0; r < 4; ++r) {
      const std::vector<float> got = RowOf(packed.form, r);
      for (int64_t c = 0; c < cols; ++c)
        ASSERT_NEAR(got[c], x[r * cols + c], 2e-3) << form.name() << " row " << r << " " << c;
    }
  }
}

// Zero points are in the kernels' range for any place of the group; NaN and infinity stay visible.
TEST(PackedWeights, Int4ZeroPointsStayInTheirRange) {
  const int64_t cols = 256;
  const float offsets[] = {0, -0.05f, 0.05f, -3, 3, -1000, 1000};
  for (const float offset : offsets) {
    for (const float size : {1e-6f, 0.05f, 1.0f, 2000.0f}) {
      std::vector<float> x = RandomFloats(4 * cols, 45, size);
      for (float& v : x) v += offset;
      const OwnedPacked packed(ViewOf(x, 4, cols), Form{DType::kF32, Quantization::kInt4}.at(4, cols));
      for (int64_t r = 0; r < 4; ++r) {
        const std::vector<float> got = RowOf(packed.form, r);
        for (int64_t c = 0; c < cols; ++c) {
          const int32_t v = ValueAt(packed.form, r, c);
          ASSERT_TRUE(-60 <= v && v <= 60) << offset << " " << size << ": " << v;
          float low = 0, high = 0;  // the grid of any group includes 0
          for (int64_t i = c / 64 * 64; i < c / 64 * 64 + 64; ++i) {
            low = std::fmin(low, x[r * cols + i]);
            high = std::fmax(high, x[r * cols + i]);
          }
          // Half a step, or the clipped part, or half of f16's smallest step 15 times.
          ASSERT_NEAR(got[c], x[r * cols + c], 0.15f * (high - low) + 30 * 0x1p-25f) << offset << " " << size;
        }
      }
    }
  }
}

TEST(PackedWeights, Int4PropagatesInfinityAndNaN) {
  for (const float bad : {INFINITY, -INFINITY, NAN, 1e30f}) {
    std::vector<float> x(128, 0.5f);
    x[70] = bad;
    const OwnedPacked packed(ViewOf(x, 1, 128), Form{DType::kF32, Quantization::kInt4}.at(1, 128));
    const std::vector<float> got = RowOf(packed.form, 0);
    EXPECT_NEAR(got[0], 0.5f, 1e-3f);
    EXPECT_FALSE(std::isfinite(got[70])) << bad;
  }
}

// ---- tokens ----

constexpr TokenFormat kTokenFormats[] = {{},
                                         {TokenValues::kF32},
                                         {TokenValues::kInt8, 128},
                                         {TokenValues::kInt8, 64},
                                         {TokenValues::kInt8, 32},
                                         {TokenValues::kInt8, 128, 32},
                                         {TokenValues::kInt8, 64, 32},
                                         {TokenValues::kInt8, 32, 32},
                                         {TokenValues::kInt8, 32, 16},
                                         {TokenValues::kInt8, 128, 0, 2},
                                         {TokenValues::kInt8, 32, 0, 2}};

std::string NameOf(const TokenFormat& f) {
  return "values " + std::to_string(static_cast<int>(f.values)) + ", block " + std::to_string(f.block) + ", wide " +
         std::to_string(f.wide) + ", parts " + std::to_string(f.parts);
}

TEST(PackedTokens, AreWithinHalfAStepAndTheirSumsAreExact) {
  ThreadPool pool(2, SystemClock());
  const int64_t tokens = 5;
  for (const Ops* ops : RunnableOps()) {
    for (const TokenFormat& format : kTokenFormats) {
      for (int64_t cols : {1, 100, 128, 576}) {
        const std::vector<float> x = RandomTokens(tokens, cols, 41);
        OwnedTokens owned(format, tokens, cols);
        const PackedTokens& packed = owned.view;
        Pack(*ops, pool, x, packed);
        const int64_t block = format.integer() ? format.block : 1;
        const auto is_wide = [&](int64_t t, int64_t c) {
          if (packed.wide == nullptr) return false;
          const int64_t i = c % format.wide - packed.wide[t * packed.wide_count() + c / format.wide].first;
          return 0 <= i && i < kWideColumns;
        };
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t c = 0; c < cols; ++c) {
            float largest = 0;
            for (int64_t k = c / block * block; k < std::min(cols, c / block * block + block); ++k) {
              largest = std::fmax(largest, std::fabs(x[t * cols + k]) / (is_wide(t, k) ? 256.0f : 1.0f));
            }
            const float step = format.values == TokenValues::kF32 ? 0
                               : !format.integer()                ? std::fabs(x[t * cols + c]) * 0x1p-7f
                                                   : largest / (format.parts == 2 ? 127.0f * 254 : 127.0f);
            ASSERT_NEAR(TokenValue(packed, t, c), x[t * cols + c], 0.501f * step + 1e-6f * largest)
                << ops->name << " " << NameOf(format) << " cols " << cols << " " << t << " " << c;
          }
          for (int64_t c = cols; c < PackedTokens::PaddedCols(cols); ++c) ASSERT_EQ(TokenValue(packed, t, c), 0.0f);
        }
        for (int64_t row = 0; format.integer() && row < packed.rows(); ++row) {
          for (int64_t s = 0; s < packed.sum_count(); ++s) {
            int32_t sum = 0;
            for (int64_t i = 16 * s; i < 16 * s + 16; ++i) sum += RowValue(packed, row, i);
            ASSERT_EQ(packed.sums[row * packed.sum_count() + s], sum) << ops->name << " " << NameOf(format);
          }
        }
      }
    }
  }
}

// The first four neighbours with the largest value of each 32 or 16.
TEST(PackedTokens, WideGroupsHoldTheLargestValues) {
  ThreadPool pool(1, SystemClock());
  std::vector<float> x(128, 1.0f);
  x[31] = -3.0f;  // the last group of the first 32
  x[46] = 2.0f;   // the first of two equal ones
  x[52] = -2.0f;
  x[64 + 5] = NAN;  // above all others
  x[64 + 9] = 1e30f;
  for (const Ops* ops : RunnableOps()) {
    OwnedTokens by_32({TokenValues::kInt8, 32, 32}, 1, 128), by_16({TokenValues::kInt8, 32, 16}, 1, 128);
    Pack(*ops, pool, x, by_32.view);
    Pack(*ops, pool, x, by_16.view);
    const auto firsts = [](const PackedTokens& packed) {
      std::vector<int32_t> out;
      for (int64_t i = 0; i < packed.wide_count(); ++i) out.push_back(packed.wide[i].first);
      return out;
    };
    EXPECT_EQ(firsts(by_32.view), (std::vector<int32_t>{28, 12, 4, 0})) << ops->name;
    EXPECT_EQ(firsts(by_16.view), (std::vector<int32_t>{0, 12, 12, 4, 4, 0, 0, 0})) << ops->name;
    EXPECT_NEAR(TokenValue(by_32.view, 0, 31), -3.0f, 1e-4f) << ops->name;
    EXPECT_FLOAT_EQ(by_32.view.scales[0], 1.0f / 127) << ops->name << ": of the others";
  }
}

void ExpectSameTokens(const PackedTokens& a, const PackedTokens& b, const std::string& what) {
  const int64_t row_bytes = PackedTokens::PaddedCols(a.cols) * a.format.value_bytes();
  for (int64_t r = 0; r < a.rows(); ++r) {
    ASSERT_EQ(std::memcmp(a.values + r * a.stride, b.values + r * b.stride, static_cast<size_t>(row_bytes)), 0)
        << what << " row " << r;
  }
  if (!a.format.integer()) return;
  ASSERT_EQ(std::memcmp(a.sums, b.sums, static_cast<size_t>(a.rows() * a.sum_count() * 4)), 0) << what;
  ASSERT_TRUE(SameBits(a.scales, b.scales, a.rows() * a.scale_count())) << what;
  for (int64_t i = 0; i < a.rows() * a.wide_count(); ++i) {
    ASSERT_EQ(a.wide[i].first, b.wide[i].first) << what << " wide group " << i;
    ASSERT_EQ(std::memcmp(a.wide[i].upper, b.wide[i].upper, sizeof a.wide[i].upper), 0) << what << " wide group " << i;
  }
}

TEST(PackedTokens, AreTheSameForEveryKernelSet) {
  ThreadPool pool(3, SystemClock());
  for (const Ops* ops : OwnSets()) {
    for (const TokenFormat& format : kTokenFormats) {
      for (int64_t cols : {1, 31, 100, 128, 576, 1536}) {
        const int64_t tokens = 7;
        std::vector<float> x = RandomTokens(tokens, cols, 42);
        for (int64_t c = 0; c < cols; ++c) x[2 * cols + c] = 0;        // a block of zeros
        for (int64_t c = 0; c < cols; ++c) x[3 * cols + c] *= 1e-33f;  // below kTokenZero
        for (int64_t c = 0; c < cols; ++c)
          x[4 * cols + c] = (static_cast<float>(c % 7) - 3) * 0.5f * (127.0f / 3);  // ties
        for (int64_t c = 0; c < cols; ++c) x[5 * cols + c] *= 1e36f;
        OwnedTokens want(format, tokens, cols), got(format, tokens, cols);
        Pack(*SelectOps("ref"), pool, x, want.view);
        Pack(*ops, pool, x, got.view);
        ExpectSameTokens(want.view, got.view,
                         std::string(ops->name) + " " + NameOf(format) + " cols " + std::to_string(cols));
      }
    }
  }
}

TEST(PackedTokens, InfinityAndNaNPropagate) {
  ThreadPool pool(1, SystemClock());
  for (const Ops* ops : RunnableOps()) {
    for (const TokenFormat& format : kTokenFormats) {
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        std::vector<float> x(256, 1.0f);
        x[200] = bad;
        OwnedTokens packed(format, 1, 256);
        Pack(*ops, pool, x, packed.view);
        EXPECT_FALSE(std::isfinite(TokenValue(packed.view, 0, 200)))
            << ops->name << " " << NameOf(format) << " " << bad;
        EXPECT_NEAR(TokenValue(packed.view, 0, 0), 1.0f, 1e-6) << ops->name << " " << NameOf(format);
      }
    }
  }
}

TEST(PackedTokens, AreNormedBeforeRounding) {
  ThreadPool pool(2, SystemClock());
  const int64_t tokens = 9, cols = 576;
  const std::vector<float> x = RandomFloats(tokens * cols, 43), weight = RandomFloats(cols, 44);
  std::vector<float> normed(x.size());
  std::vector<const Ops*> sets = OwnSets();
  sets.push_back(SelectOps("ref"));
  for (const Ops* ops : sets) {
    ops->rms_norm(pool, x.data(), tokens, cols, weight.data(), 1e-5f, normed.data());
    for (const TokenFormat& format : kTokenFormats) {
      OwnedTokens want(format, tokens, cols), got(format, tokens, cols);
      Pack(*ops, pool, normed, want.view);
      ops->pack(pool, x.data(), weight.data(), 1e-5f, got.view);
      ExpectSameTokens(want.view, got.view, ops->name);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
