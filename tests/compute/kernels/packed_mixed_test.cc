// Products over packed weights as models mix them: formats with different blocks over one set of tokens, more outputs
// than any layer has, prompts longer than a task, more threads than panels.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "compute/kernels/packed_testing.h"

namespace tactus::compute::packed_mixed_test {
namespace {

using namespace testing;

// 16 or 32 columns per scale, zeros of 0, 8, 16, 32 and 128, with and without minima.
constexpr compute::DType kFormats[] = {compute::DType::kQ4_K, compute::DType::kQ6_K, compute::DType::kQ4_0,
                                       compute::DType::kQ5_1, compute::DType::kQ8_0, compute::DType::kQ5_0,
                                       compute::DType::kQ4_1, compute::DType::kQ5_K, compute::DType::kQ6_K,
                                       compute::DType::kQ8_0, compute::DType::kQ4_K};

TEST(PackedMixed, OutputsWithDifferentBlocksShareTokens) {
  const int64_t tokens = 23, rows = 70, cols = 768;
  ThreadPool pool(2, SystemClock());
  const std::vector<float> x = RandomTokens(tokens, cols, 201);
  for (const Ops* ops : RunnableOps()) {
    for (const Rounding rounding : kIntegerRoundings) {
      std::vector<std::unique_ptr<OwnedPacked>> weights;
      std::vector<std::vector<float>> y, want;
      std::vector<LinearOutput> outputs;
      for (const compute::DType dtype : kFormats) {
        if (TokensFor(Form{dtype}.at(rows, cols), rounding) != TokensFor(Form{kFormats[0]}.at(rows, cols), rounding)) {
          continue;  // a wide group per 16 columns: a different token format
        }
        const OwnedMatrix w = RandomMatrix(dtype, rows, cols, 202 + weights.size());
        weights.push_back(std::make_unique<OwnedPacked>(w.view, Form{dtype}.at(rows, cols)));
        want.push_back(RunPacked(*ops, pool, x.data(), tokens, weights.back()->form, rounding));
        y.emplace_back(static_cast<size_t>(tokens * rows), -1.0f);
      }
      for (size_t i = 0; i < weights.size(); ++i)
        outputs.push_back({&weights[i]->form, nullptr, y[i].data(), rows, false});
      OwnedTokens in(TokensFor(weights[0]->form, rounding), tokens, cols);
      OwnedWorkspace scratch(tokens, cols, 1, 8, pool.threads());
      Pack(*ops, pool, x, in.view);
      ops->linear_packed(pool, in.view, outputs, scratch.view());
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(SameBits(y[i].data(), want[i].data(), tokens * rows))
            << ops->name << ", output " << i << ", rounding " << NameOf(rounding);
      }
    }
  }
}

// Gate and up with different blocks: equal to two products, silu_mul and pack, up to one step of the rounding.
TEST(PackedMixed, GateAndUpMayHaveDifferentFormats) {
  const int64_t tokens = 9, rows = 200, cols = 512;
  ThreadPool pool(2, SystemClock());
  const std::vector<float> x = RandomFloats(tokens * cols, 231);
  const OwnedMatrix wg = RandomMatrix(compute::DType::kQ4_K, rows, cols, 232),
                    wu = RandomMatrix(compute::DType::kQ6_K, rows, cols, 233);
  const OwnedPacked gate(wg.view, Form{compute::DType::kQ4_K}.at(rows, cols)),
      up(wu.view, Form{compute::DType::kQ6_K}.at(rows, cols));
  for (const Ops* ops : RunnableOps()) {
    std::vector<float> inner(static_cast<size_t>(tokens * rows));
    const std::vector<float> g = RunPacked(*ops, pool, x.data(), tokens, gate.form, Rounding::kInt8);
    std::vector<float> h = RunPacked(*ops, pool, x.data(), tokens, up.form, Rounding::kInt8);
    ops->activate(pool, Activation::kSilu, g.data(), h.data(), tokens * rows, h.data());
    const TokenFormat two_parts = {TokenValues::kInt8, 32, 0, 2};
    OwnedTokens in(TokensFor(gate.form, Rounding::kInt8), tokens, cols), out(two_parts, tokens, rows),
        want(two_parts, tokens, rows);
    OwnedWorkspace scratch(tokens, cols, 1, 8, pool.threads());
    Pack(*ops, pool, x, in.view);
    Pack(*ops, pool, h, want.view);
    ops->gated_packed(pool, in.view, gate.form, nullptr, up.form, nullptr, inner.data(), out.view, scratch.view());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t c = 0; c < PackedTokens::PaddedCols(rows); ++c) {
        const double got = TokenValue(out.view, t, c), expected = TokenValue(want.view, t, c);
        const double step = std::fabs(want.view.scales[(2 * t + 1) * want.view.scale_count() + c / 32]);
        ASSERT_NEAR(got, expected, 1.01 * step + 1e-5 * std::fabs(expected))
            << ops->name << " token " << t << " column " << c;
      }
    }
  }
}

// A prompt of many tasks in both directions, on more threads than panels: each token as if alone.
TEST(PackedMixed, LongPromptsOnManyThreadsChangeNoBit) {
  const int64_t tokens = MostTokens(450), rows = 130;
  ThreadPool one(1, SystemClock()), many(16, SystemClock());
  const Form forms[] = {{compute::DType::kBF16},
                        {compute::DType::kF16},
                        {compute::DType::kF32},
                        {compute::DType::kQ8_0},
                        {compute::DType::kQ6_K},
                        {compute::DType::kQ4_1},
                        {compute::DType::kF32, Quantization::kInt8},
                        {compute::DType::kF32, Quantization::kInt4}};
  for (const Form& form : forms) {
    const int64_t cols = form.width(1300);
    const OwnedMatrix w = RandomMatrix(form.dtype, rows, cols, 221);
    const OwnedPacked packed(w.view, form.at(rows, cols));
    const std::vector<float> x = RandomTokens(tokens, cols, 222);
    for (const Rounding rounding : RoundingsOf(form)) {
      for (const Ops* ops : OwnSets()) {
        const std::vector<float> y = RunPacked(*ops, many, x.data(), tokens, packed.form, rounding);
        for (int64_t t = 0; t < tokens; t += 7) {
          const std::vector<float> alone = RunPacked(*ops, one, x.data() + t * cols, 1, packed.form, rounding);
          ASSERT_TRUE(SameBits(y.data() + t * rows, alone.data(), rows))
              << ops->name << " " << form.name() << " token " << t << ", rounding " << NameOf(rounding);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tactus::compute::packed_mixed_test
