// Steps of models whose layers differ: windows, experts, norms, parallel blocks.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "cost/known_operators.h"

namespace tactus::cost::mixed_layers_test {
namespace {

using known::KnownOperators, known::Of, known::Parts, known::Shape;

// A model whose layers differ: each kind has its own operators, windows and number in each stage.
struct MixedParts : Parts {
  ModelSpec spec;

  // Layers 0 and 1 as in Parts, then two with a window of 64 and eight experts of 6, two per token, beside one of 10.
  MixedParts() {
    model.layers = 4;
    spec = UniformModel(model);
    for (const size_t l : {2, 3}) {
      std::get<compute::AttentionBlock>(spec.layers[l][0].block).window = 64;
      compute::ExpertsBlock experts{.experts = 8, .shared_inner = 10};
      experts.router.chosen = 2;
      experts.expert.inner = 6;
      spec.layers[l][1].block = experts;
    }
  }
  HybridModel MakeMixed() const {
    return HybridModel(deployment, spec, device, {"bfloat16", 2, 2, device.bf16_flops}, host,
                       std::make_unique<KnownOperators>(operators), {"", coverage});
  }
};
constexpr int64_t kQkvAndOut = 48 * 16 + 16 * 32, kFeedForward = 3 * 16 * 24, kExpert = 3 * 16 * 6;
constexpr int64_t kRouterAndShared = 8 * 16 + 3 * 16 * 10;

TEST(HybridModel, ExpertsAreMultipliedForTheirRowsAlone) {
  MixedParts p;
  p.operators.gemm = 1;
  const int64_t dense = kQkvAndOut + kFeedForward, mixture = kQkvAndOut + kRouterAndShared + 2 * kExpert;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 10 * 2 * (dense + mixture));
  // Each of two devices has half of every expert, and the router whole.
  p.deployment.tp = 2;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 10 * 2 * (dense + mixture + 8 * 16) / 2);
}

TEST(HybridModel, ExpectedExpertsAreRead) {
  MixedParts p;
  p.operators.touched = 1;
  const auto touched = [](double tokens) { return 8 * (1 - std::pow(0.75, tokens)); };
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 1}}})), 2 * 2 * kExpert);
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), std::llround(2 * touched(5) * kExpert));
  // Two replicas share the experts: a device has four and reads them for the tokens of both, of whose 20 choices the
  // fuller device has more than 10.
  p.deployment.ep = 2;
  const double fullness = 1 + ExpectedMaximum(2) * std::sqrt(10.0 * 6 / 7) / 10;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), std::llround(2 * touched(10 * fullness) / 2 * kExpert));
}

// The tokens of both replicas are gathered, with their two choices of 8 bytes each, and their sums scattered: the
// residual stream twice, and the choices once.
TEST(HybridModel, SharedExpertsCostAnExchange) {
  MixedParts p;
  p.operators.exchange = 1;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), 0);
  p.deployment.ep = 2;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 5}}})), 2 * (5 * (16 * 2 + 2 * 8 / 2) * 2) * 2);
}

TEST(HybridModel, EqualStepsTogetherTakeTheTimeOfOne) {
  MixedParts p;
  p.operators.launch = 5;
  p.operators.gemm = p.operators.touched = p.operators.decode = p.operators.exchange = 1;
  p.host.step = {7, 3};
  EXPECT_EQ(p.MakeMixed().replicas_together(), 1);
  p.deployment.ep = 2;
  const HybridModel m = p.MakeMixed();
  EXPECT_EQ(m.replicas_together(), 2);
  const StepShape step = Of({{}, 4, 4 * 1024, 4});
  const JointStep steps[] = {{step}, {step}};
  EXPECT_NEAR(static_cast<double>(m.TogetherNs(steps)), static_cast<double>(m.StepTimeNs(step)), 1);
  p.deployment.pp = 2;
  EXPECT_EQ(p.MakeMixed().replicas_together(), 1) << "pipelines are priced by themselves";
}

// The slower replica's products, and the experts and the exchange for the mean of both replicas' tokens.
TEST(HybridModel, UnequalStepsTogetherWaitForTheSlower) {
  MixedParts p;
  p.operators.gemm = p.operators.exchange = 1;
  p.deployment.ep = 2;
  const HybridModel m = p.MakeMixed();
  const ExpertsShape experts{8, 2, 16, 6, 2, ExpectedMaximum(2)};
  const auto shared = [&](double mean) {
    return 2 * (kExpert * experts.Rows(mean) + mean * (16 * 2 + 2 * 8 / 2) * 2 * 2);
  };
  const double own = 2 * 10 * (kQkvAndOut + kFeedForward) + 2 * 10 * (kQkvAndOut + kRouterAndShared);
  const Shape prompt{{{0, 10}}}, decodes{{}, 4, 4 * 1024};
  const auto together = [&](const Shape& other) {
    const JointStep steps[] = {{Of(prompt)}, {Of(other)}};
    return m.TogetherNs(steps);
  };
  EXPECT_EQ(together(decodes), std::llround(own + shared(7)));
  EXPECT_EQ(together({}), std::llround(own + shared(5))) << "the other one has no tokens";
  EXPECT_NEAR(static_cast<double>(together({{}, 3, 3 * 1024})), own + (shared(6) + shared(7)) / 2, 1)
      << "the mean is no whole number";
}

// Four tokens of 64 replicas: what no token adds, and a sixteenth of what one adds.
TEST(HybridModel, FewTokensOfManyReplicasAreNotRoundedUp) {
  MixedParts p;
  p.operators.exchange = 1;
  p.operators.exchange_least = 1000;
  p.deployment.ep = 64;
  std::vector<JointStep> steps(64);
  for (size_t i = 0; i < 4; ++i) steps[i].shape = Of({{}, 1, 100});
  const double token = (16 * 2 + 2 * 8 / 2) * 64 * 64;
  EXPECT_NEAR(static_cast<double>(p.MakeMixed().TogetherNs(steps)), 2 * (1000 + token / 16), 1);
}

// A slow replica's factor counts for its own operators, and for those of all, even if it has no tokens.
TEST(HybridModel, ASlowReplicaDelaysWhatItComputes) {
  MixedParts p;
  p.operators.gemm = 1;
  p.deployment.ep = 2;
  const HybridModel m = p.MakeMixed();
  const ExpertsShape experts{8, 2, 16, 6, 2, ExpectedMaximum(2)};
  const auto shared = [&](double mean) { return 2 * kExpert * experts.Rows(mean); };
  const double own = 2 * (kQkvAndOut + kFeedForward + kQkvAndOut + kRouterAndShared);  // of a token
  const Shape prompt{{{0, 10}}};
  const auto together = [&](const Shape& of_slow) {
    const JointStep steps[] = {{Of(prompt), 1}, {Of(of_slow), 4}};
    return m.TogetherNs(steps);
  };
  EXPECT_EQ(together({{}, 2, 200}), std::llround(10 * own + 4 * shared(6))) << "the prompt keeps its speed";
  EXPECT_EQ(together({{}, 4, 400}), std::llround(4 * 4 * own + 4 * shared(7))) << "four slow decodes take longer";
  EXPECT_EQ(together({}), std::llround(10 * own + 4 * shared(5))) << "it computes its experts";
}

// The embedding's row makes four streams; the inputs of four layers are read and written.
TEST(HybridModel, TheEmbeddingMakesStreamsAndLayerInputs) {
  MixedParts p;
  p.operators.embed = 1;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 10 * 2 * 16 * 2);
  for (compute::Layer& layer : p.spec.layers) {
    layer.push_back({.block = compute::LayerInputBlock{.inner = 6}});
    layer.push_back({.block = compute::StreamsBlock{.streams = 4}});
  }
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 10 * (5 * 16 + 2 * 4 * 6) * 2);
}

TEST(HybridModel, EachKindOfLayerHasItsWindow) {
  MixedParts p;
  p.operators.decode = 2;
  EXPECT_NEAR(static_cast<double>(p.MakeMixed().StepTimeNs(Of({{}, 4, 4 * 1024}))),
              2 * 2 * (4 + 1024) + 2 * 2 * (4 + 64), 20);
  // The first stage has the layers without windows, the second those with.
  p.deployment.pp = 2;
  const HybridModel m = p.MakeMixed();
  EXPECT_NEAR(static_cast<double>(m.StageTimeNs(Of({{}, 4, 4 * 1024}), 0)), 2 * 2 * (4 + 1024), 10);
  EXPECT_NEAR(static_cast<double>(m.StageTimeNs(Of({{}, 4, 4 * 1024}), 1)), 2 * 2 * (4 + 64), 10);
}

TEST(HybridModel, FlopsAndBytesFollowEachKindOfLayer) {
  const HybridModel m = MixedParts().MakeMixed();
  const Shape shape{{{100, 10}}, 3, 3 * 90, 0};
  const StepShape step = Of(shape);
  const double dense = 2 * 13 * (kQkvAndOut + kFeedForward) + 4 * 32 * (10 * 105.5 + 3 * 90);
  const double mixture = 2 * 13 * (kQkvAndOut + kRouterAndShared + 2 * kExpert) + 4 * 32 * (10 * (64 + 5.5) + 3 * 64);
  EXPECT_NEAR(m.StepFlops(step), 2 * (dense + mixture), 1e-6);
  const double read = kQkvAndOut + kRouterAndShared + 8 * (1 - std::pow(0.75, 13)) * kExpert;
  EXPECT_NEAR(m.StepBytes(step),
              2 * (2 * (kQkvAndOut + kFeedForward) + 32 * (110 + 270) + 2 * read + 32 * (74 + 3 * 64)), 1e-6);
  MixedParts p;
  for (compute::Layer& l : p.spec.layers) std::get<compute::AttentionBlock>(l[0].block).chunk = 40;
  const auto bytes = [&](int64_t context) { return p.MakeMixed().StepBytes(Of({{}, 4, 4 * context})); };
  EXPECT_EQ(bytes(1023) - bytes(31), 4 * 4 * (40 - 31) * 32) << "a decode reads a chunk at most";
}

// Norms after a block: beside a norm before it they read and write the block's output; alone they are the sum's.
TEST(HybridModel, NormsAfterBlocksCount) {
  MixedParts p;
  p.operators.norm = 1;
  const double before = p.MakeMixed().StepTimeNs(Of({{{0, 10}}}));
  EXPECT_EQ(before, 4 * 2 * 10 * 4 * 32);
  for (compute::Layer& layer : p.spec.layers) {
    for (compute::LayerBlock& b : layer) b.post = b.norm;
  }
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), before + 4 * 2 * 10 * 2 * 32);
  for (compute::Layer& layer : p.spec.layers) {
    for (compute::LayerBlock& b : layer) b.norm = {};
  }
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), before);
}

// Two norms of one stream are two kernels, and the sum of both blocks one.
TEST(HybridModel, ParallelBlocksWithTwoNormsHaveTwo) {
  MixedParts p;
  p.operators.norm = 1;
  for (compute::Layer& layer : p.spec.layers) layer[1].parallel = true;
  EXPECT_EQ(p.MakeMixed().StepTimeNs(Of({{{0, 10}}})), 4 * 2 * 10 * 4 * 32);
}

TEST(HybridModel, PartsOfMixedLayersAddUp) {
  MixedParts p;
  p.operators.gemm = 1, p.operators.norm = 2, p.operators.decode = 3, p.operators.adds = 1;
  const HybridModel m = p.MakeMixed();
  const Shape shape{{{20, 10}}, 3, 270, 4};
  const StepShape step = Of(shape);
  double sum = 0;
  std::set<std::string> names;
  for (const StepPart& part : m.StepParts(step)) {
    sum += part.ns;
    EXPECT_TRUE(names.insert(part.name).second) << part.name;
  }
  EXPECT_NEAR(sum, static_cast<double>(m.StepTimeNs(step)), 1);
  EXPECT_TRUE(names.contains("experts") && names.contains("down product") && names.contains("shared down product"));
}

}  // namespace
}  // namespace tactus::cost::mixed_layers_test
