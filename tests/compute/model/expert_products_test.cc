// Tokens grouped by expert, and the products of all experts as one job against one product after another.
#include "compute/model/expert_products.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "compute/model/expert_rows.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute {
namespace {

constexpr int64_t kCols = 128;

ModelConfig MixtureOf(int64_t experts, int32_t chosen) {
  ExpertsBlock block;
  block.experts = experts;
  block.router.chosen = chosen;
  ModelConfig config;
  config.layers = {{{.block = block}}};
  return config;
}

TEST(ExpertRows, RowsOfAnExpertFollowOneAnotherWithTokensAscending) {
  const ModelConfig config = MixtureOf(4, 2);
  ExpertRows rows(config, 8);
  const std::vector<int32_t> chosen = {1, 3, 0, 3, 1, 3};  // of three tokens
  std::copy(chosen.begin(), chosen.end(), rows.chosen());
  for (size_t i = 0; i < chosen.size(); ++i) rows.weights()[i] = static_cast<float>(i);
  rows.Group(*ExpertsOf(config.layers[0]), 3);
  EXPECT_EQ(rows.rows(), 6);
  EXPECT_EQ(rows.count(0), 1);
  EXPECT_EQ(rows.count(1), 2);
  EXPECT_EQ(rows.count(2), 0);
  EXPECT_EQ(rows.first(3), 3);
  const std::vector<int32_t> active(rows.active().begin(), rows.active().end());
  EXPECT_EQ(active, (std::vector<int32_t>{3, 1, 0})) << "most rows first";
  const std::vector<int64_t> tokens = {1, 0, 2, 0, 1, 2};
  for (int64_t r = 0; r < 6; ++r) EXPECT_EQ(rows.token(r), tokens[static_cast<size_t>(r)]) << "row " << r;
  for (int64_t t = 0; t < 3; ++t) {
    for (int32_t n = 0; n < 2; ++n) {
      EXPECT_EQ(rows.token(rows.row(t, n)), t);
      EXPECT_EQ(rows.weight_of_row(rows.row(t, n)), rows.weight(t, n));
      EXPECT_EQ(rows.weight(t, n), static_cast<float>(2 * t + n));
    }
  }
}

TEST(ExpertRows, ASecondStepForgetsTheFirst) {
  const ModelConfig config = MixtureOf(3, 1);
  ExpertRows rows(config, 4);
  for (int i = 0; i < 4; ++i) rows.chosen()[i] = 2;
  rows.Group(*ExpertsOf(config.layers[0]), 4);
  rows.chosen()[0] = 0;
  rows.Group(*ExpertsOf(config.layers[0]), 1);
  EXPECT_EQ(rows.rows(), 1);
  EXPECT_EQ(rows.count(2), 0);
  EXPECT_EQ(rows.active().size(), 1u);
}

// A matrix of random values, packed; its memory.
struct Weights {
  Weights(Rng& rng, int64_t rows, DType dtype) {
    std::vector<float> values(static_cast<size_t>(rows * kCols));
    for (float& v : values) v = static_cast<float>(rng.UniformInt(-1000, 1000)) / 1000.0f;
    std::vector<std::byte> stored(static_cast<size_t>(rows * RowBytes(dtype, kCols)));
    if (dtype == DType::kF32) {
      std::memcpy(stored.data(), values.data(), stored.size());
    } else {
      Quantize(dtype, values.data(), rows * kCols, stored.data());
    }
    const MatrixView view{stored.data(), dtype, rows, kCols, RowBytes(dtype, kCols)};
    EXPECT_TRUE(PackedFormOf(dtype, rows, kCols, &matrix));
    memory.resize(static_cast<size_t>(matrix.bytes()) + 64);
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    PackPanels(view, matrix, 0, matrix.panels(), aligned);
    matrix.data = aligned;
  }
  PackedMatrix matrix;
  std::vector<std::byte> memory;
};

class ExpertProductsTest : public testing::TestWithParam<DType> {};

TEST_P(ExpertProductsTest, EqualOneProductAfterAnotherBitForBit) {
  Rng rng(3);
  constexpr int64_t kRows = 200, kTokens = 300;  // several panels, the last one not full; several blocks of tokens
  std::vector<Weights> weights;
  for (int e = 0; e < 3; ++e) weights.emplace_back(rng, kRows, GetParam());
  std::vector<float> x(kTokens * kCols), bias(kRows);
  for (float& v : x) v = static_cast<float>(rng.UniformInt(-1000, 1000)) / 500.0f;
  for (float& v : bias) v = static_cast<float>(rng.UniformInt(-1000, 1000)) / 500.0f;
  const int64_t counts[] = {250, 49, 1};
  for (const Ops* ops : RunnableOps()) {
    for (const int32_t threads : {1, 3}) {
      SCOPED_TRACE(std::string(ops->name) + ", " + std::to_string(threads) + " threads");
      ThreadPool pool(threads, SystemClock());
      const TokenFormat format = TokensFor(weights[0].matrix, Rounding::kMixed);
      std::vector<std::byte> token_memory(static_cast<size_t>(PackedTokenBytes(kTokens, kCols)) + 64);
      auto* at = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(token_memory.data()) + 63) / 64 * 64);
      const PackedTokens tokens = PlaceTokens(at, format, kTokens, kCols);
      ops->pack(pool, x.data(), nullptr, 0.0f, tokens);
      std::vector<std::byte> scratch(static_cast<size_t>(WorkspaceBytes(kTokens, kCols, 0, 0, threads)));
      std::vector<std::byte> shares(static_cast<size_t>(ExpertProducts::WorkspaceBytesFor(kCols, threads)));
      std::vector<float> want(kTokens * kRows), got(kTokens * kRows, NAN);
      ExpertProducts products(3);
      int64_t first = 0;
      for (size_t e = 0; e < 3; ++e) {
        const PackedTokens own = TokenSlice(tokens, first, counts[e]);
        const float* own_bias = e == 1 ? bias.data() : nullptr;
        const LinearOutput one{&weights[e].matrix, own_bias, want.data() + first * kRows, kRows};
        ops->linear_packed(pool, own, {&one, 1}, {scratch.data(), static_cast<int64_t>(scratch.size())});
        products.Add(own, {&weights[e].matrix, own_bias, got.data() + first * kRows, kRows});
        first += counts[e];
      }
      products.Run(*ops, pool, {shares.data(), static_cast<int64_t>(shares.size())});
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ExpertProductsTest, testing::Values(DType::kF32, DType::kQ8_0, DType::kQ4_1),
                         [](const auto& test) { return std::string(InfoOf(test.param).name); });

TEST(GatherTokens, CopiesEveryPartOfAToken) {
  Rng rng(5);
  ThreadPool pool(2, SystemClock());
  const Ops& ops = *SelectOps("ref");
  Weights weights(rng, 64, DType::kQ4_1);
  std::vector<float> x(4 * kCols);
  for (float& v : x) v = static_cast<float>(rng.UniformInt(-1000, 1000)) / 500.0f;
  for (const Rounding rounding : {Rounding::kNone, Rounding::kInt8, Rounding::kMixed, Rounding::kInt16}) {
    const TokenFormat format = TokensFor(weights.matrix, rounding);
    std::vector<std::byte> memory(static_cast<size_t>(3 * PackedTokenBytes(20, kCols)));
    auto* at = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    const PackedTokens from = PlaceTokens(at, format, 4, kCols);
    const PackedTokens to = PlaceTokens(at + PackedTokenBytes(20, kCols), format, 20, kCols);
    ops.pack(pool, x.data(), nullptr, 0.0f, from);
    GatherTokens(pool, from, to, [](int64_t row) { return row * 7 % 4; });
    std::vector<float> want(4 * 64), got(20 * 64), scratch(1 << 16);
    const Workspace workspace{reinterpret_cast<std::byte*>(scratch.data()), 4 << 16};
    const LinearOutput wanted{&weights.matrix, nullptr, want.data(), 64},
        gotten{&weights.matrix, nullptr, got.data(), 64};
    ops.linear_packed(pool, from, {&wanted, 1}, workspace);
    ops.linear_packed(pool, to, {&gotten, 1}, workspace);
    for (int64_t r = 0; r < 20; ++r) {
      EXPECT_EQ(std::memcmp(&got[static_cast<size_t>(r * 64)], &want[static_cast<size_t>(r * 7 % 4 * 64)], 64 * 4), 0)
          << "row " << r;
    }
  }
}

}  // namespace
}  // namespace tactus::compute
