// Work of blocks against shapes counted by hand, and against the tensors that they declare.
#include "compute/config/block_work.h"

#include <gtest/gtest.h>

namespace tactus::compute {
namespace {

constexpr int64_t kHidden = 64;

AttentionBlock Attention() {
  return {.heads = 8, .kv_heads = 2, .head_dim = 16, .qkv_bias = true, .qk_norm = QkNorm::kHeads};
}
ExpertsBlock Experts() {
  ExpertsBlock e{.experts = 8, .shared_inner = 48, .shared_weight = true};
  e.router.chosen = 2;
  e.router.bias = true;
  e.expert = {.inner = 24, .bias = true};
  return e;
}

TEST(BlockWork, AttentionCountsFourMatricesAndItsKv) {
  const BlockWork w = WorkOf(Attention(), kHidden);
  EXPECT_EQ(w.elements(), 64 * (128 + 32 + 32) + 128 * 64) << "no norms, no biases";
  EXPECT_EQ(w.token_elements(), w.elements());
  EXPECT_EQ(w.flops_per_token(), 2.0 * static_cast<double>(w.elements()));
  EXPECT_EQ(w.ElementsRead(7), static_cast<double>(w.elements()));
  EXPECT_EQ(w.kv, 2 * 2 * 16);
  EXPECT_EQ(w.inner, 0);
}

TEST(BlockWork, FeedForwardBlocksCountTheirMatrices) {
  const BlockWork gated = WorkOf(GatedFeedForwardBlock{.inner = 96, .bias = true}, kHidden);
  EXPECT_EQ(gated.elements(), 3 * 64 * 96);
  EXPECT_EQ(gated.inner, 3 * 96);
  const BlockWork plain = WorkOf(FeedForwardBlock{.inner = 96}, kHidden);
  EXPECT_EQ(plain.elements(), 2 * 64 * 96);
  EXPECT_EQ(plain.inner, 2 * 96);
  EXPECT_EQ(plain.kv, 0);
}

TEST(BlockWork, LowRankResidualsAndStreamsCountTheirMatrices) {
  const BlockWork low_rank = WorkOf(LowRankBlock{.rank = 8}, kHidden);
  EXPECT_EQ(low_rank.elements(), 2 * 64 * 8);
  EXPECT_EQ(low_rank.inner, 8);
  const StreamsBlock predict{StreamStep::kPredict, 4}, correct{StreamStep::kCorrect, 4};
  EXPECT_EQ(WorkOf(predict, kHidden).elements(), 4 * 64 + 16 * 4);
  EXPECT_EQ(WorkOf(correct, kHidden).elements(), 4 * 4) << "the router is the first half's";
  const Layer layer = {{.block = predict}, {.block = LowRankBlock{.rank = 8}}, {.block = correct}};
  EXPECT_EQ(WorkOf(ShareOf(layer, 2), kHidden).elements(), WorkOf(layer, kHidden).elements());
  EXPECT_EQ(StreamsOf(layer), 4);
}

TEST(BlockWork, TokenUsesItsExpertsAndAllElse) {
  const BlockWork w = WorkOf(Experts(), kHidden);
  const int64_t expert = 3 * 64 * 24, every = 8 * 64 + 64 + 3 * 64 * 48;  // router, weight of the shared one, shared
  EXPECT_EQ(w.elements(), every + 8 * expert);
  EXPECT_EQ(w.token_elements(), every + 2 * expert);
  EXPECT_EQ(w.inner, 3 * (2 * 24 + 48));
}

TEST(BlockWork, ExpectedExpertsFollowTheTokens) {
  EXPECT_EQ(ExpectedExperts(8, 0.25, 0), 0);
  EXPECT_DOUBLE_EQ(ExpectedExperts(8, 0.25, 1), 2);
  EXPECT_DOUBLE_EQ(ExpectedExperts(8, 0.25, 2), 8 * (1 - 0.75 * 0.75));
  EXPECT_NEAR(ExpectedExperts(128, 8.0 / 128, 128), 127.97, 0.01);
  EXPECT_EQ(ExpectedExperts(4, 1, 1), 4) << "every token uses all";
  const BlockWork w = WorkOf(Experts(), kHidden);
  EXPECT_DOUBLE_EQ(w.ElementsRead(1), static_cast<double>(w.token_elements()));
  EXPECT_DOUBLE_EQ(w.ElementsRead(2), static_cast<double>(w.every_token) + 3.5 * 3 * 64 * 24);
}

TEST(BlockWork, LayerIsTheSumOfItsBlocks) {
  const Layer layer = {{.block = Attention()}, {.block = GatedFeedForwardBlock{.inner = 32}}, {.block = Experts()}};
  const BlockWork w = WorkOf(layer, kHidden);
  const int64_t dense = WorkOf(Attention(), kHidden).elements() + 3 * 64 * 32;
  EXPECT_EQ(w.elements(), dense + WorkOf(Experts(), kHidden).elements());
  EXPECT_EQ(w.token_elements(), dense + WorkOf(Experts(), kHidden).token_elements());
  EXPECT_EQ(w.kv, 64);
  EXPECT_EQ(w.inner, 3 * 96) << "the widest block";
}

// Shares follow the axes of the declarations: a rank has 1 / ranks of each matrix that names one.
TEST(BlockWork, SharesFollowTheDeclaredAxes) {
  const Layer layer = {{.block = Attention()}, {.block = Experts()}};
  for (const int64_t ranks : {1, 2}) {
    for (const LayerBlock& b : layer) {
      int64_t elements = 0;
      for (const TensorDecl& t : std::visit([](const auto& block) { return block.Tensors(kHidden); }, b.block)) {
        if (IsMatrix(t.role)) elements += t.split == Split::kNone ? t.elements() : t.elements() / ranks;
      }
      EXPECT_EQ(WorkOf(ShareOf({b}, ranks), kHidden).elements(), elements);
    }
  }
  const Layer four = ShareOf(layer, 4);
  EXPECT_EQ(AttentionOf(four)->heads, 2);
  EXPECT_EQ(AttentionOf(four)->kv_heads, 1) << "two ranks share a KV head";
  EXPECT_EQ(ExpertsOf(four)->experts, 8);
  EXPECT_EQ(ExpertsOf(ShareOf(layer, 1, 4))->experts, 2);
  EXPECT_EQ(ExpertsOf(ShareOf(layer, 1, 3))->experts, 3) << "the rank with the most";
  EXPECT_EQ(ExpertsOf(ShareOf(layer, 1, 4))->expert.inner, 24);
}

ModelConfig Mixture() {
  ModelConfig c;
  c.hidden_size = kHidden;
  c.vocab_size = 100;
  const Layer dense = {{.block = Attention()}, {.block = GatedFeedForwardBlock{.inner = 32}}};
  const Layer sparse = {{.block = Attention()}, {.block = Experts()}};
  c.layers = {dense, sparse, sparse, dense};
  return c;
}

TEST(BlockWork, ActiveParametersLeaveUnusedExpertsOut) {
  ModelConfig c = Mixture();
  const int64_t expert = 3 * 64 * 24 + 24 + 24 + 64;
  EXPECT_EQ(ActiveParameters(c), c.NumParameters() - 2 * 6 * expert);
  c.layers = {c.layers[0]};
  EXPECT_EQ(ActiveParameters(c), c.NumParameters());
}

TEST(BlockWork, EqualLayersFormGroups) {
  const ModelConfig c = Mixture();
  const std::vector<LayerGroup> groups = GroupLayers(c.layers);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].at, std::vector<int64_t>({0, 3}));
  EXPECT_EQ(groups[1].at, std::vector<int64_t>({1, 2}));
  EXPECT_EQ(groups[1].layer, c.layers[1]);
  std::vector<Layer> windows = {c.layers[0], c.layers[0]};
  std::get<AttentionBlock>(windows[1][0].block).window = 8;
  EXPECT_EQ(GroupLayers(windows).size(), 2u);
}

}  // namespace
}  // namespace tactus::compute
