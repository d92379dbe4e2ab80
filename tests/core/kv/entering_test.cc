// Blocks marked as pending wait and enter the tree in batches. This must be invisible: each test runs one operation
// while blocks wait.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/kv/block_key.h"
#include "core/kv/kv_cache.h"
#include "core/kv/own_keys.h"

namespace tactus::entering_test {
namespace {

constexpr Hash128 kSecret{3, 4};
constexpr int32_t kBlock = 4, kTokens = 12;

// Claims for its sequence the keys of another one.
class TakenKeys final : public core::OwnKeys {
 public:
  TakenKeys(const std::vector<Hash128>* taken, std::vector<Hash128>* keys) : taken_(*taken), keys_(*keys) {}
  int32_t KeysKnown(SlotId) const override { return static_cast<int32_t>(taken_.size()); }
  void MakeKeys(SlotId) override { keys_ = taken_; }

 private:
  const std::vector<Hash128>& taken_;
  std::vector<Hash128>& keys_;
};

// Slot 0 has a prompt of three blocks, marked by step 0; slot 1 waits with the same prompt.
class Entering : public testing::Test {
 protected:
  void SetUp() override { Mark(0); }
  void Bind(SlotId s, TokenId family) {
    std::vector<Hash128>& keys = keys_[static_cast<size_t>(s)];
    keys.reserve(16);
    core::ExtendBlockKeys(kSecret, core::RootKey(kSecret, "m", "", ""), std::vector<TokenId>(kTokens, family), kBlock,
                          &keys);
    kv_.Bind(s, &keys);
  }
  void Mark(SlotId s) {
    Bind(s, s);
    plan_.step = 0;
    ASSERT_TRUE(kv_.Start(s, kTokens, kTokens, kTokens, kNoSlot, &plan_).ok);
    kv_.MarkPending(s, kTokens, 0);
  }
  int32_t Found() {
    if (keys_[1].empty()) Bind(1, 0);
    return kv_.PeekMatch(1, kTokens);
  }

  core::KvCache kv_{{160, kBlock, 48, 16, true}};
  std::vector<Hash128> keys_[48];
  std::vector<SlotId> recompute_;
  StepPlan plan_;
};

TEST_F(Entering, PeekMatchFindsWaitingBlocks) {
  EXPECT_EQ(Found(), 8);
}

TEST_F(Entering, StartCostCountsWaitingBlocks) {
  Bind(1, 0);
  EXPECT_EQ(kv_.StartCost(1, kTokens, kTokens, kTokens), 1);
}

TEST_F(Entering, StartSharesWaitingBlocks) {
  Bind(1, 0);
  EXPECT_EQ(kv_.Start(1, kTokens, kTokens, kTokens, kNoSlot, &plan_).matched_tokens, 8);
}

TEST_F(Entering, ReleaseLeavesWaitingBlocksCached) {
  kv_.StepEnded(0, true, &recompute_);
  kv_.Release(0, -1);
  EXPECT_EQ(kv_.Stats().blocks_cached, 3);
  EXPECT_EQ(Found(), 8);
}

TEST_F(Entering, ReleaseInTheSamePlanLeavesWaitingBlocksDraining) {
  kv_.Release(0, 0);
  EXPECT_EQ(kv_.Stats().blocks_draining, 3);
  EXPECT_EQ(Found(), 8);
}

TEST_F(Entering, EndInTheSamePlanLeavesWaitingBlocksDraining) {
  kv_.End(0, 0);
  EXPECT_EQ(kv_.Stats().blocks_draining, 3);
  EXPECT_EQ(Found(), 8);
}

TEST_F(Entering, FailedStepRemovesWaitingBlocks) {
  kv_.StepEnded(0, false, &recompute_);
  EXPECT_EQ(recompute_, std::vector<SlotId>{0});
  EXPECT_EQ(Found(), 0);
}

TEST_F(Entering, FailedItemRemovesWaitingBlocks) {
  kv_.ItemFailed(0, 0, 0, &recompute_);
  EXPECT_EQ(recompute_, std::vector<SlotId>{0});
  EXPECT_EQ(Found(), 0);
}

TEST_F(Entering, OnStepFailedRemovesWaitingBlocks) {
  kv_.OnStepFailed(0, &recompute_);
  EXPECT_EQ(recompute_, std::vector<SlotId>{0});
  EXPECT_EQ(Found(), 0);
}

TEST_F(Entering, RollbackRemovesWaitingBlocks) {
  kv_.Rollback(0, kBlock);
  EXPECT_EQ(Found(), 4);
}

TEST_F(Entering, MoreBlocksThanOneBatchEnter) {
  for (SlotId s = 2; s < 20; ++s) Mark(s);
  kv_.StepEnded(0, true, &recompute_);
  for (SlotId s = 2; s < 20; ++s) {
    ASSERT_TRUE(kv_.Extend(s, kTokens + kBlock, &plan_));  // all enter before blocks are allocated
    core::ExtendBlockKeys(kSecret, Hash128{}, std::vector<TokenId>(kTokens + kBlock, s), kBlock, &keys_[s]);
  }
  for (int round = 0; round < 2; ++round) {
    for (SlotId s = 2; s < 20; ++s) kv_.MarkPending(s, kTokens + kBlock, 1);
  }
  EXPECT_EQ(kv_.CheckIntegrity(), "");
  for (SlotId s = 2; s < 20; ++s) {
    kv_.Bind(47, &keys_[s]);
    EXPECT_EQ(kv_.PeekMatch(47, kTokens + kBlock + 1), kTokens + kBlock) << "slot " << s;
    kv_.Unbind(47);
  }
}

// The other sequence has released its blocks, so that the new ones could become owners without a trace.
TEST_F(Entering, OwnKeysOfCachedBlocksAbort) {
  kv_.StepEnded(0, true, &recompute_);
  kv_.Release(0, -1);
  TakenKeys own(&keys_[0], &keys_[1]);
  kv_.Bind(1, &keys_[1], &own);
  plan_.step = 1;
  ASSERT_TRUE(kv_.Start(1, kTokens, kTokens, kTokens, kNoSlot, &plan_).ok);
  kv_.MarkPending(1, kTokens, 1);
  kv_.StepEnded(1, true, &recompute_);
  EXPECT_DEATH(kv_.Release(1, -1), "a key of OwnKeys is another sequence's as well");
}

}  // namespace
}  // namespace tactus::entering_test
