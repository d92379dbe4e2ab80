// Whole experts as one job, against their operators one after another.
#include "compute/model/whole_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "base/rng.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute {
namespace {

constexpr int64_t kExpertCols = 128, kExpertInner = 200, kExpertRows = 150;  // the last panel is not full

std::vector<float> RandomValues(Rng& rng, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(rng.UniformInt(-1000, 1000)) / 500.0f;
  return values;
}

// Bytes at a multiple of 64.
struct AlignedMemory {
  explicit AlignedMemory(int64_t bytes) : owned(static_cast<size_t>(bytes) + 64) {}
  std::byte* at() { return owned.data() + (64 - reinterpret_cast<uintptr_t>(owned.data()) % 64) % 64; }
  std::vector<std::byte> owned;
};

// A packed matrix of random values.
struct ExpertMatrix {
  ExpertMatrix(Rng& rng, int64_t rows, int64_t cols, DType dtype) : memory(rows * cols * 8 + 65536) {
    const std::vector<float> values = RandomValues(rng, rows * cols);
    std::vector<std::byte> stored(static_cast<size_t>(rows * RowBytes(dtype, cols)));
    if (dtype == DType::kF32) {
      std::memcpy(stored.data(), values.data(), stored.size());
    } else {
      Quantize(dtype, values.data(), rows * cols, stored.data());
    }
    EXPECT_TRUE(PackedFormOf(dtype, rows, cols, &matrix));
    PackPanels({stored.data(), dtype, rows, cols, RowBytes(dtype, cols)}, matrix, 0, matrix.panels(), memory.at());
    matrix.data = memory.at();
  }
  PackedMatrix matrix;
  AlignedMemory memory;
};

struct RandomExpert {
  RandomExpert(Rng& rng, DType dtype)
      : gate(rng, kExpertInner, kExpertCols, dtype),
        up(rng, kExpertInner, kExpertCols, dtype),
        down(rng, kExpertCols, kExpertInner, DType::kF32) {}
  ExpertMatrix gate, up, down;
};

class WholeExpertsTest : public ::testing::TestWithParam<DType> {};

TEST_P(WholeExpertsTest, EqualTheirOperatorsBitForBit) {
  Rng rng(3);
  const RandomExpert first(rng, GetParam()), second(rng, GetParam());
  const std::vector<float> values = RandomValues(rng, kExpertRows * kExpertCols),
                           bias = RandomValues(rng, kExpertInner);
  const std::vector<int32_t> chosen = {3, 7, 8, 149};
  const TokenFormat format = TokensFor(first.gate.matrix, Rounding::kMixed), inner = {TokenValues::kF32};
  for (const Ops* ops : RunnableOps()) {
    ThreadPool one(1, SystemClock());
    AlignedMemory packed(PackedTokenBytes(kExpertRows, kExpertCols)),
        packed_inner(PackedTokenBytes(kExpertRows, kExpertInner));
    const PackedTokens x = PlaceTokens(packed.at(), format, kExpertRows, kExpertCols);
    ops->pack(one, values.data(), nullptr, 0.0f, x);
    AlignedMemory scratch(WorkspaceBytes(kExpertRows, kExpertInner, 0, 0, 1));
    const Workspace workspace{scratch.at(), WorkspaceBytes(kExpertRows, kExpertInner, 0, 0, 1)};
    const auto one_by_one = [&](const RandomExpert& e, const float* up_bias) {
      std::vector<float> gate(kExpertRows * kExpertInner), up(kExpertRows * kExpertInner), y(kExpertRows * kExpertCols);
      const LinearOutput outputs[] = {{&e.gate.matrix, nullptr, gate.data(), kExpertInner},
                                      {&e.up.matrix, up_bias, up.data(), kExpertInner}};
      ops->linear_packed(one, x, {outputs, 2}, workspace);
      ops->activate(one, Activation::kSilu, gate.data(), up.data(), kExpertRows * kExpertInner, gate.data());
      const PackedTokens inner_x = PlaceTokens(packed_inner.at(), inner, kExpertRows, kExpertInner);
      ops->pack(one, gate.data(), nullptr, 0.0f, inner_x);
      const LinearOutput down{&e.down.matrix, nullptr, y.data(), kExpertCols};
      ops->linear_packed(one, inner_x, {&down, 1}, workspace);
      return y;
    };
    const std::vector<float> want_first = one_by_one(first, bias.data()), want_second = one_by_one(second, nullptr);
    for (const int32_t threads : {1, 3}) {
      SCOPED_TRACE(std::string(ops->name) + ", " + std::to_string(threads) + " threads");
      ThreadPool pool(threads, SystemClock());
      const int64_t bytes = WholeExperts::WorkspaceBytesFor(kExpertCols, kExpertInner, threads);
      AlignedMemory shares(bytes);
      std::vector<float> all(kExpertRows * kExpertCols, NAN), some(chosen.size() * kExpertCols, NAN);
      WholeExperts experts(2);
      experts.Add({.x = x,
                   .count = kExpertRows,
                   .gate = &first.gate.matrix,
                   .up = &first.up.matrix,
                   .down = &first.down.matrix,
                   .up_bias = bias.data(),
                   .inner = inner,
                   .y = all.data()});
      experts.Add({.x = x,
                   .tokens = chosen.data(),
                   .count = static_cast<int64_t>(chosen.size()),
                   .gate = &second.gate.matrix,
                   .up = &second.up.matrix,
                   .down = &second.down.matrix,
                   .inner = inner,
                   .y = some.data()});
      experts.Run(*ops, pool, {shares.at(), bytes});
      EXPECT_EQ(std::memcmp(all.data(), want_first.data(), all.size() * 4), 0) << "an expert of every token";
      for (size_t i = 0; i < chosen.size(); ++i) {
        EXPECT_EQ(std::memcmp(&some[i * kExpertCols], &want_second[static_cast<size_t>(chosen[i]) * kExpertCols],
                              kExpertCols * 4),
                  0)
            << "an expert's token " << chosen[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, WholeExpertsTest, ::testing::Values(DType::kF32, DType::kQ8_0, DType::kQ4_1),
                         [](const auto& test) { return std::string(InfoOf(test.param).name); });

TEST(WholeExpertsRun, AreSharedOnlyWhereEveryThreadGetsSeveral) {
  Rng rng(4);
  const RandomExpert expert(rng, DType::kF32);
  WholeExperts experts(8);
  const auto add = [&](int64_t count) {
    experts.Add({.count = count, .gate = &expert.gate.matrix, .up = &expert.up.matrix, .down = &expert.down.matrix});
  };
  for (int i = 0; i < 7; ++i) add(1);
  EXPECT_FALSE(experts.Occupies(2)) << "seven units";
  add(1);
  EXPECT_TRUE(experts.Occupies(2)) << "eight units";
  EXPECT_FALSE(experts.Occupies(3));
  experts.Clear();
  add(1024);
  EXPECT_TRUE(experts.Occupies(2)) << "eight blocks of one expert's tokens";
}

}  // namespace
}  // namespace tactus::compute
