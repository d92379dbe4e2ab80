// The outline of the prefix tree: branches, their sizes and their users.
#include "core/kv/prefix_outline.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/kv/block_key.h"
#include "core/kv/kv_cache.h"

namespace tactus::prefix_outline_test {
namespace {

constexpr Hash128 kSecret{3, 4};
constexpr int32_t kBlock = 4;

class PrefixOutlineTest : public testing::Test {
 protected:
  // A sequence that computes a prompt of one token value per block, and one token more.
  void Start(SlotId s, const std::vector<TokenId>& blocks) {
    std::vector<TokenId> tokens;
    for (const TokenId t : blocks) tokens.insert(tokens.end(), kBlock, t);
    std::vector<Hash128>& keys = keys_[static_cast<size_t>(s)];
    core::ExtendBlockKeys(kSecret, core::RootKey(kSecret, "m", "", ""), tokens, kBlock, &keys);
    kv_.Bind(s, &keys);
    const auto count = static_cast<int32_t>(tokens.size()) + 1;
    plan_.Clear();
    plan_.step = ++step_;
    ASSERT_TRUE(kv_.Start(s, count, count, count, kNoSlot, &plan_).ok);
    kv_.MarkPending(s, count, step_);
    std::vector<SlotId> recompute;
    kv_.StepEnded(step_, true, &recompute);
    kv_.Stats();  // enters what waits, as every pass of the loop does
  }

  core::KvCache kv_{{64, kBlock, 8, 8, true}};
  std::array<std::vector<Hash128>, 8> keys_;
  StepPlan plan_;
  StepId step_ = -1;
};

TEST_F(PrefixOutlineTest, AnEmptyTreeHasNoBranches) {
  EXPECT_EQ(kv_.Outline(8).blocks, 0);
  EXPECT_TRUE(kv_.Outline(8).branches.empty());
}

TEST_F(PrefixOutlineTest, PromptsThatShareABeginningAreBranchesOfIt) {
  Start(0, {1, 1, 2, 2, 2});
  Start(1, {1, 1, 3});
  Start(2, {9});
  kv_.Release(1, -1);
  const PrefixOutline outline = kv_.Outline(8);
  EXPECT_EQ(outline.blocks, 7);
  ASSERT_EQ(outline.branches.size(), 4u);
  const PrefixBranch& shared = outline.branches[0];
  EXPECT_EQ(shared.parent, -1);
  EXPECT_EQ(shared.depth, 0);
  EXPECT_EQ(shared.blocks, 2);
  EXPECT_EQ(shared.below, 4);
  EXPECT_EQ(shared.sequences, 1) << "the other one has ended";
  EXPECT_EQ(shared.in_use, 2);
  const PrefixBranch& longer = outline.branches[1];
  EXPECT_EQ(longer.parent, 0);
  EXPECT_EQ(longer.depth, 2);
  EXPECT_EQ(longer.blocks, 3);
  EXPECT_EQ(longer.in_use, 3);
  int cached = 0, own = 0;
  for (size_t i = 2; i < 4; ++i) {
    const PrefixBranch& b = outline.branches[i];
    EXPECT_EQ(b.blocks, 1);
    cached += b.parent == 0 && b.depth == 2 && b.in_use == 0 && b.sequences == 0 ? 1 : 0;
    own += b.parent == -1 && b.in_use == 1 ? 1 : 0;
  }
  EXPECT_EQ(cached, 1) << "the ended request's own block is cached";
  EXPECT_EQ(own, 1) << "the third prompt shares nothing";
}

// Making an outline takes time for every node that the tree ever had, on the engine thread.
TEST(PrefixOutlineOfALargeTree, IsNotMadeAlsoAfterTheTreeHasShrunk) {
  constexpr int32_t kBlocks = core::kMostOutlinedBlocks + 100, kTokens = (kBlocks - 10) * kBlock;
  core::KvCache kv({kBlocks, kBlock, 2, kBlocks, true});
  StepPlan plan;
  std::vector<SlotId> recompute;
  std::vector<Hash128> keys;
  const auto start = [&](SlotId slot, StepId step) {
    kv.Bind(slot, &keys);
    plan.Clear();
    plan.step = step;
    ASSERT_TRUE(kv.Start(slot, kTokens, kTokens, kTokens, kNoSlot, &plan).ok);
    kv.MarkPending(slot, kTokens, step);
    kv.StepEnded(step, true, &recompute);
    kv.Stats();
  };
  core::ExtendBlockKeys(kSecret, core::RootKey(kSecret, "m", "", ""), std::vector<TokenId>(kTokens, 7), kBlock, &keys);
  start(0, 0);
  PrefixOutline outline = kv.Outline(8);
  EXPECT_TRUE(outline.too_large) << outline.blocks << " blocks";
  EXPECT_TRUE(outline.branches.empty());
  kv.Release(0, -1);
  keys.clear();  // the second sequence enters nothing in the tree, and evicts the first one's blocks
  start(1, 1);
  outline = kv.Outline(8);
  EXPECT_LT(outline.blocks, 100) << "the test needs a tree that has shrunk";
  EXPECT_TRUE(outline.too_large);
  EXPECT_TRUE(outline.branches.empty());
}

TEST_F(PrefixOutlineTest, TheLargestBranchesAreKeptWithTheirParents) {
  Start(0, {1, 1, 2, 2, 2});
  Start(1, {1, 1, 3});
  Start(2, {9});
  const PrefixOutline outline = kv_.Outline(2);
  ASSERT_EQ(outline.branches.size(), 2u);
  EXPECT_EQ(outline.branches[0].sequences, 2);
  EXPECT_EQ(outline.branches[0].below, 4) << "branches that are not listed count";
  EXPECT_EQ(outline.branches[1].parent, 0);
}

}  // namespace
}  // namespace tactus::prefix_outline_test
