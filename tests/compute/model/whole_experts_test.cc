// Whole experts as one job, against their operators one after another.
#include "compute/model/whole_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/rng.h"
#include "compute/model/decoder.h"
#include "compute/tensor/quantize.h"

namespace tactus::compute {
namespace {

constexpr int64_t kExpertCols = 128, kExpertRows = 150;

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

// The formats of an expert's matrices, and how down's input is rounded.
struct ExpertFormats {
  DType inputs, down;
  Rounding rounding = Rounding::kMixed;

  // The last panel is not full. Formats of blocks have whole ones.
  int64_t inner() const { return down == DType::kF32 || down == DType::kBF16 ? 200 : 224; }
};

struct RandomExpert {
  RandomExpert(Rng& rng, const ExpertFormats& formats)
      : gate(rng, formats.inner(), kExpertCols, formats.inputs),
        up(rng, formats.inner(), kExpertCols, formats.inputs),
        down(rng, kExpertCols, formats.inner(), formats.down),
        gate_bias(RandomValues(rng, formats.inner())),
        up_bias(RandomValues(rng, formats.inner())),
        down_bias(RandomValues(rng, kExpertCols)) {}
  WholeExpert Of(const PackedTokens& x, TokenFormat inner, float* y) const {
    return {.x = x,
            .count = x.tokens,
            .gate = &gate.matrix,
            .up = &up.matrix,
            .down = &down.matrix,
            .gate_bias = gate_bias.data(),
            .up_bias = up_bias.data(),
            .down_bias = down_bias.data(),
            .inner = inner,
            .y = y};
  }
  ExpertMatrix gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;
};

// y of the operators of Ops one after another.
std::vector<float> OneByOne(const Ops& ops, const RandomExpert& e, const PackedTokens& x, TokenFormat inner_format) {
  ThreadPool one(1, SystemClock());
  const int64_t inner = e.gate.matrix.rows, bytes = WorkspaceBytes(kExpertRows, inner, 0, 0, 1);
  AlignedMemory scratch(bytes), packed_inner(PackedTokenBytes(kExpertRows, inner));
  std::vector<float> gate(static_cast<size_t>(kExpertRows * inner)), up(gate.size()), y(kExpertRows * kExpertCols);
  const LinearOutput outputs[] = {{&e.gate.matrix, e.gate_bias.data(), gate.data(), inner},
                                  {&e.up.matrix, e.up_bias.data(), up.data(), inner}};
  ops.linear_packed(one, x, {outputs, 2}, {scratch.at(), bytes});
  ops.activate(one, Activation::kSilu, gate.data(), up.data(), kExpertRows * inner, gate.data());
  const PackedTokens inner_x = PlaceTokens(packed_inner.at(), inner_format, kExpertRows, inner);
  ops.pack(one, gate.data(), nullptr, 0.0f, inner_x);
  const LinearOutput down{&e.down.matrix, e.down_bias.data(), y.data(), kExpertCols};
  ops.linear_packed(one, inner_x, {&down, 1}, {scratch.at(), bytes});
  return y;
}

class WholeExpertsTest : public ::testing::TestWithParam<ExpertFormats> {};

TEST_P(WholeExpertsTest, EqualTheirOperatorsBitForBit) {
  Rng rng(3);
  const RandomExpert first(rng, GetParam()), second(rng, GetParam());
  const std::vector<float> values = RandomValues(rng, kExpertRows * kExpertCols);
  std::vector<int32_t> few = {3, 7, 8, 149}, many;  // many: more than a unit's tokens
  for (int32_t t = 0; t < kExpertRows; ++t) {
    if (t % 10 != 4) many.push_back(t);
  }
  const TokenFormat format = TokensFor(first.gate.matrix, Rounding::kMixed),
                    inner = TokensFor(first.down.matrix, GetParam().rounding);
  for (const Ops* ops : RunnableOps()) {
    ThreadPool one(1, SystemClock());
    AlignedMemory packed(PackedTokenBytes(kExpertRows, kExpertCols));
    const PackedTokens x = PlaceTokens(packed.at(), format, kExpertRows, kExpertCols);
    ops->pack(one, values.data(), nullptr, 0.0f, x);
    const std::vector<float> want_first = OneByOne(*ops, first, x, inner),
                             want_second = OneByOne(*ops, second, x, inner);
    for (const int32_t threads : {1, 3}) {
      SCOPED_TRACE(std::string(ops->name) + ", " + std::to_string(threads) + " threads");
      ThreadPool pool(threads, SystemClock());
      const int64_t bytes = WholeExperts::WorkspaceBytesFor(kExpertCols, first.gate.matrix.rows, kExpertRows, threads);
      AlignedMemory shares(bytes);
      std::vector<float> all(kExpertRows * kExpertCols, NAN), of_few(few.size() * kExpertCols, NAN),
          of_many(many.size() * kExpertCols, NAN);
      WholeExperts experts(3);
      experts.Add(first.Of(x, inner, all.data()));
      for (const auto& [tokens, y] : {std::pair(&few, &of_few), std::pair(&many, &of_many)}) {
        WholeExpert expert = second.Of(x, inner, y->data());
        expert.tokens = tokens->data();
        expert.count = static_cast<int64_t>(tokens->size());
        experts.Add(expert);
      }
      experts.Run(*ops, pool, {shares.at(), bytes});
      EXPECT_EQ(std::memcmp(all.data(), want_first.data(), all.size() * 4), 0) << "an expert of every token";
      for (const auto& [tokens, y] : {std::pair(&few, &of_few), std::pair(&many, &of_many)}) {
        for (size_t i = 0; i < tokens->size(); ++i) {
          const auto token = static_cast<size_t>((*tokens)[i]);
          EXPECT_EQ(std::memcmp(&(*y)[i * kExpertCols], &want_second[token * kExpertCols], kExpertCols * 4), 0)
              << "token " << token << " of " << tokens->size();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, WholeExpertsTest,
    ::testing::Values(ExpertFormats{DType::kF32, DType::kF32}, ExpertFormats{DType::kQ8_0, DType::kF32},
                      ExpertFormats{DType::kQ4_1, DType::kF32}, ExpertFormats{DType::kBF16, DType::kBF16},
                      ExpertFormats{DType::kQ8_0, DType::kQ8_0, Rounding::kMixedFine},
                      ExpertFormats{DType::kQ4_1, DType::kQ8_0, Rounding::kInt16}),
    [](const auto& test) { return std::string(InfoOf(test.param.inputs).name) + "_" + InfoOf(test.param.down).name; });

TEST(WholeExpertsRun, AreSharedOnlyWhereEveryThreadGetsSeveral) {
  Rng rng(4);
  const RandomExpert expert(rng, {DType::kF32, DType::kF32});
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

// Scratch for whole experts is reserved where a block of the model runs so, and for no more tokens than a step has.
TEST(WholeExpertsRun, TakeMemoryOnlyForTheirBlocks) {
  const auto bytes = [](const ExpertsBlock& block, int64_t tokens) {
    ModelConfig c;
    c.hidden_size = 256, c.vocab_size = 64;
    c.layers = {{{.block = block}}};
    DecoderOptions options;
    options.max_tokens = tokens, options.max_logit_rows = 1, options.threads = 4;
    return DecoderBufferBytes(c, options);
  };
  ExpertsBlock whole{.experts = 8, .expert = {.inner = 512}};
  ExpertsBlock gelu = whole, weighs_input = whole;
  gelu.expert.activation = Activation::kGeluTanh;
  weighs_input.router.weighs_input = true;
  for (const int64_t tokens : {16, 128, 512}) {
    const int64_t scratch =
        WholeExperts::WorkspaceBytesFor(256, 512, tokens, 4) - ExpertProducts::WorkspaceBytesFor(512, 4);
    const int64_t more = std::max<int64_t>(scratch, 0);
    EXPECT_NEAR(bytes(whole, tokens) - bytes(gelu, tokens), more, 64) << tokens;
    EXPECT_NEAR(bytes(whole, tokens) - bytes(weighs_input, tokens), more, 64) << tokens;
  }
  EXPECT_LT(WholeExperts::WorkspaceBytesFor(256, 512, 16, 4), WholeExperts::WorkspaceBytesFor(256, 512, 128, 4));
  EXPECT_EQ(WholeExperts::WorkspaceBytesFor(256, 512, 128, 4), WholeExperts::WorkspaceBytesFor(256, 512, 512, 4));
}

}  // namespace
}  // namespace tactus::compute
