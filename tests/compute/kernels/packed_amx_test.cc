// The matrix-tile code on a software model of the tiles: the specification's bits for integer codes, its bound and the
// same bits in every batch for bf16, and no fault of the model. On a machine with AMX, packed_linear_test.cc also runs
// the set "amx".
#include <gtest/gtest.h>

#include "compute/kernels/packed/kernel.h"
#include "compute/kernels/packed_testing.h"
#include "compute/kernels/simd/portable.h"
#include "compute/kernels/tile_model.h"

namespace tactus::compute {
namespace {

using namespace testing;

constexpr int64_t kMostTokens = 70;

// The terms that AVX-512's driver computes (compute/kernels/packed/avx512/packed.h).
struct ModelTerms {
  std::vector<float> scale, total;
  std::vector<std::byte> upper;
  TokenTerms view;

  ModelTerms(const PackedTokens& x, const PackedMatrix& w) {
    if (!x.format.integer()) return;
    const int64_t block = w.block > 0 ? w.block : kTokenBlock, blocks = PackedTokens::PaddedCols(x.cols) / block;
    for (int64_t row = 0; row < x.rows(); ++row) {
      for (int64_t b = 0; b < blocks; ++b) {
        int32_t sum = 0;
        for (int64_t i = 0; i < block / 16; ++i) sum += x.sums[row * x.sum_count() + b * block / 16 + i];
        scale.push_back(x.scales[row * x.scale_count() + b * block / x.format.block]);
        total.push_back(static_cast<float>(sum) * scale.back());
      }
    }
    view.scale = scale.data();
    if (w.has_minimum) view.total = total.data();
    view.stride = blocks;
    if (x.format.wide == 0) return;
    upper.resize(static_cast<size_t>(x.rows() * x.stride));
    for (int64_t i = 0; i < x.rows() * x.wide_count(); ++i) {
      const int64_t column = i % x.wide_count() * x.format.wide + x.wide[i].first;
      std::memcpy(upper.data() + i / x.wide_count() * x.stride + column, x.wide[i].upper, kWideColumns);
    }
    view.upper = upper.data();
  }
};

std::vector<float> RunTiles(ThreadPool& pool, const float* x, int64_t tokens, const PackedMatrix& w, Rounding rounding,
                            const float* bias) {
  OwnedTokens packed(TokensFor(w, rounding), tokens, w.cols);
  SelectOps("ref")->pack(pool, x, nullptr, 0.0f, packed.view);
  ModelTerms terms(packed.view, w);
  std::vector<float> y(static_cast<size_t>(tokens * w.rows), -1.0f);
  const LinearOutput out = {&w, bias, y.data(), w.rows, false};
  for (int64_t panel = 0; panel < w.panels(); ++panel) {
    alignas(64) float sums[2 * kMostTokens * kPanelRows];
    PanelRun run;
    run.w = &w;
    run.x = &packed.view;
    run.terms = terms.view;
    run.panel = panel;
    run.rows = packed.view.rows();
    run.sums = sums;
    SumPanelByTiles<ModelTiles, ModelLanes>(run);
    StorePanel(out, {&w, &packed.view, panel, 0, run.rows, sums}, TokenCut(packed.view, 0, 1, tokens));
  }
  return y;
}

TEST(PackedAmx, TilesHaveTheSpecificationsBits) {
  ThreadPool pool(1, SystemClock());
  const int64_t rows = 100;
  ModelTiles::faults = ModelTiles::products = 0;
  for (const Form& form : AllForms()) {
    for (int64_t about : {32, 400}) {
      const int64_t cols = form.width(about);
      const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 131);
      const OwnedPacked packed(w.view, form.at(rows, cols));
      for (int64_t tokens : {1, 16, 33, 70}) {
        const std::vector<float> x = RandomTokens(tokens, cols, 132), bias = RandomFloats(rows, 133);
        for (const Rounding rounding : RoundingsOf(form)) {
          if (rounding == Rounding::kNone) continue;  // not supported by tiles
          const std::vector<float> want =
              RunPacked(*SelectOps("ref"), pool, x.data(), tokens, packed.form, rounding, bias.data());
          const std::vector<float> got = RunTiles(pool, x.data(), tokens, packed.form, rounding, bias.data());
          if (form.integer()) {
            ASSERT_TRUE(SameBits(got.data(), want.data(), tokens * rows))
                << form.name() << " " << cols << " tokens " << tokens;
            continue;
          }
          std::vector<float> row(static_cast<size_t>(cols));
          for (int64_t i = 0; i < tokens * rows; ++i) {
            UnpackRow(packed.form, i % rows, row.data());
            double magnitude = std::fabs(bias[i % rows]);
            for (int64_t c = 0; c < cols; ++c)
              magnitude += std::fabs(static_cast<double>(x[i / rows * cols + c]) * row[c]);
            ASSERT_NEAR(got[i], want[i], 4 * std::sqrt(static_cast<double>(cols) + 4) * 0x1p-24 * magnitude)
                << form.name() << " " << i;
          }
        }
      }
    }
  }
  EXPECT_EQ(ModelTiles::faults, 0);
  EXPECT_GT(ModelTiles::products, 0);
}

TEST(PackedAmx, Bf16HasTheSameBitsInEveryBatch) {
  ThreadPool pool(1, SystemClock());
  const int64_t rows = 70, cols = 167, most = 50;
  const OwnedMatrix w = RandomMatrix(DType::kBF16, rows, cols, 141);
  const OwnedPacked packed(w.view, Form{DType::kBF16}.at(rows, cols));
  const std::vector<float> x = RandomTokens(most, cols, 142);
  std::vector<float> alone;
  for (int64_t t = 0; t < most; ++t) {
    const std::vector<float> y = RunTiles(pool, x.data() + t * cols, 1, packed.form, Rounding::kInt8, nullptr);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  for (int64_t tokens = 2; tokens <= most; ++tokens) {
    const std::vector<float> y = RunTiles(pool, x.data(), tokens, packed.form, Rounding::kInt8, nullptr);
    ASSERT_TRUE(SameBits(y.data(), alone.data(), tokens * rows)) << tokens;
  }
}

// The model itself, against results derived by hand from the manual.
TEST(TileModel, FaultsWhereTheProcessorWould) {
  ModelTiles::Release();
  ModelTiles::faults = 0;
  ModelTiles::Zero<0>();
  EXPECT_EQ(ModelTiles::faults, 1) << "no configuration";
  TileConfig config = ConfigOf(16, 16, 64);
  config.rows[3] = 17;
  ModelTiles::Configure(config);
  EXPECT_EQ(ModelTiles::faults, 2) << "17 rows";
  config = ConfigOf(16, 0, 64);
  config.reserved[5] = 1;
  ModelTiles::Configure(config);
  EXPECT_EQ(ModelTiles::faults, 3) << "a reserved byte";
  ModelTiles::Configure(ConfigOf(16, 0, 64));
  ModelTiles::Zero<2>();
  EXPECT_EQ(ModelTiles::faults, 4) << "a tile without rows";
  config = ConfigOf(16, 0, 64);
  config.rows[6] = 8;
  ModelTiles::Configure(config);
  ModelTiles::Dot<true, 0, 4, 6>();
  EXPECT_EQ(ModelTiles::faults, 5) << "depths that differ";
  ModelTiles::Release();
}

TEST(TileModel, MultipliesSignedBySigned) {
  ModelTiles::faults = 0;
  ModelTiles::Configure(ConfigOf(1, 0, 4));
  const int8_t a[4] = {-128, 127, -1, 3};
  int8_t b[64];
  for (int i = 0; i < 64; ++i) b[i] = static_cast<int8_t>(2 * i - 128);
  ModelTiles::Zero<0>();
  ModelTiles::Load<4>(reinterpret_cast<const std::byte*>(a), 4);
  ModelTiles::Load<6>(reinterpret_cast<const std::byte*>(b), 64);
  ModelTiles::Dot<true, 0, 4, 6>();
  ModelTiles::Dot<true, 0, 4, 6>();
  int32_t c[16];
  ModelTiles::Store<0>(reinterpret_cast<std::byte*>(c), 64);
  EXPECT_EQ(c[0], 2 * (-128 * -128 + 127 * -126 + 124 + 3 * -122));
  EXPECT_EQ(c[15], 2 * (-128 * -8 + 127 * -6 + 4 + 3 * -2));
  EXPECT_EQ(ModelTiles::faults, 0);
  ModelTiles::Release();
}

}  // namespace
}  // namespace tactus::compute
