// The operators of layers whose blocks combine in other ways than one after the other, counted by hand.
#include "cost/layer_operators.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "cost/hybrid_model.h"

namespace tactus::cost {
namespace {

using compute::AttentionBlock, compute::ExpertsBlock, compute::GatedFeedForwardBlock, compute::Layer,
    compute::LowRankBlock, compute::NormSpec, compute::Role, compute::StreamsBlock, compute::StreamStep;

// A product takes n * k per token, an elementwise operator its bytes, an all-reduce 1.
struct Counts final : OperatorTimes {
  std::function<double(int64_t)> Gemm(const WeightFormat&, int64_t n, int64_t k) const override {
    return [=](int64_t m) { return static_cast<double>(m * n * k); };
  }
  std::function<double(int64_t)> Experts(const WeightFormat&, const ExpertsShape&) const override {
    return [](int64_t) { return 0.0; };
  }
  double PrefillBaseNs(const AttentionShape&) const override { return 0; }
  double PrefillAddsNs(const AttentionShape&, double, double) const override { return 0; }
  double PrefillAloneNs(const AttentionShape&, double, double) const override { return 0; }
  double DecodeNs(const AttentionShape&, double, double) const override { return 0; }
  double DecodeBesideChunkNs(const AttentionShape&, double, double) const override { return 0; }
  double ElementwiseNs(Elementwise, double bytes) const override { return bytes; }
  double AllReduceNs(double, int32_t) const override { return 1; }
  double SendNs(double, int32_t) const override { return 0; }
};

constexpr int64_t kHidden = 64;
constexpr double kStreamBytes = 64 * kActivationBytes;

// The times of one token's operators, by name.
std::map<std::string, double> TimesOf(const Layer& layer) {
  const Counts counts;
  std::map<std::string, double> times;
  for (const LayerOperator& o : OperatorsOf(layer, {.times = &counts, .hidden = kHidden, .tp = 2})) {
    times[o.name] += o.ns(1);
  }
  return times;
}

constexpr AttentionBlock kAttention{.heads = 4, .kv_heads = 2, .head_dim = 16};
const NormSpec kNorm = compute::RmsNormOf(Role::kAttentionNorm, 1e-6f);

TEST(LayerOperators, JointBranchesHaveTwoNormsOfOutputsAndOneOfTheirSum) {
  ExpertsBlock experts{.experts = 4, .expert = {.inner = 32}};
  experts.router_norm = kNorm;
  Layer layer = {{.norm = kNorm, .block = kAttention, .post = kNorm},
                 {.norm = kNorm, .block = GatedFeedForwardBlock{.inner = 32}, .post = kNorm},
                 {.norm = kNorm, .block = experts, .post = kNorm, .joint = kNorm}};
  std::map<std::string, double> times = TimesOf(layer);
  EXPECT_EQ(times["norms"], 2 * 4 * kStreamBytes);
  EXPECT_EQ(times["norms of outputs"], 5 * 2 * kStreamBytes) << "three blocks, the sum, the experts' input";
  EXPECT_EQ(times["residual sum"], 3 * kStreamBytes);
  EXPECT_EQ(times["router norm"], 2 * kStreamBytes);
  EXPECT_EQ(times["all-reduces"], 3);
}

// The low-rank residual and the attention read one norm, and no rank has a part of the first.
TEST(LayerOperators, StreamsAndLowRankResidualsNeedNoAllReduce) {
  const Layer layer = {{.block = StreamsBlock{StreamStep::kPredict, 4}},
                       {.norm = kNorm, .block = LowRankBlock{.rank = 8}},
                       {.norm = kNorm, .block = kAttention, .parallel = true},
                       {.block = StreamsBlock{StreamStep::kCorrect, 4}}};
  std::map<std::string, double> times = TimesOf(layer);
  EXPECT_EQ(times["all-reduces"], 1);
  EXPECT_EQ(times["norms"], 4 * kStreamBytes);
  EXPECT_EQ(times["low-rank product"] + times["low-rank output product"], 2 * 8 * kHidden);
  EXPECT_EQ(times["stream router"], 2 * 4 * kHidden);
  EXPECT_EQ(times["streams"], 2 * 2 * 5 * kStreamBytes);
}

TEST(LayerOperators, MatricesOfNoLayerRunOnTokensAndOnRowsOfLogits) {
  constexpr int64_t kSquare = kHidden * kHidden;
  ModelSpec plain = UniformModel({.layers = 1,
                                  .hidden = kHidden,
                                  .q_heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .ffn = 32,
                                  .vocab = 100,
                                  .context = 64});
  ModelSpec more = plain;
  more.token_projections = 3 * kSquare;
  more.logit_projections = 2 * kSquare;
  const auto model = [](const ModelSpec& spec) {
    return HybridModel({}, spec, *FindDevice("h100"), {"bfloat16", 2, 2, 1e14}, {}, std::make_unique<Counts>(),
                       {"", {}});
  };
  const HybridModel with = model(more), without = model(plain);
  StepShape step;
  const ChunkShape chunk{0, 10};
  step.chunks = {&chunk, 1};
  step.logit_rows = 2;
  EXPECT_EQ(with.StepFlops(step) - without.StepFlops(step), 2 * (3 * 10 + 2 * 2) * kSquare);
  EXPECT_EQ(with.StepBytes(step) - without.StepBytes(step), 2 * 5 * kSquare);
  EXPECT_NEAR(static_cast<double>(with.StepTimeNs(step) - without.StepTimeNs(step)), (3 * 10 + 2 * 2) * kSquare, 1);
}

}  // namespace
}  // namespace tactus::cost
