// Reports of blocks that enter the tree or were evicted (TakeEntered, WasEvicted, Cached).
#include <gtest/gtest.h>

#include "core/kv/block_key.h"
#include "core/kv/kv_cache.h"

namespace tactus::entered_test {
namespace {

constexpr Hash128 kSecret{3, 4};
constexpr int32_t kBlock = 4;

class EnteredTest : public testing::Test {
 protected:
  void Bind(SlotId s, int32_t tokens, TokenId family = 0) {
    keys_[s].clear();
    core::ExtendBlockKeys(kSecret, core::RootKey(kSecret, "m", "", ""),
                          std::vector<TokenId>(static_cast<size_t>(tokens), family), kBlock, &keys_[s]);
    kv_->Bind(s, &keys_[s]);
  }
  core::KvStart Start(SlotId s, int32_t tokens) {
    StepPlan plan;
    plan.step = step_;
    const core::KvStart start = kv_->Start(s, tokens, tokens, tokens, kNoSlot, &plan);
    if (start.ok) kv_->MarkPending(s, tokens, step_);
    return start;
  }
  void End(bool ok = true) {
    std::vector<SlotId> recompute;
    kv_->StepEnded(step_++, ok, &recompute);
  }
  void Gone(SlotId s) {
    kv_->Release(s, -1);
    kv_->Unbind(s);
  }
  void TearDown() override { EXPECT_EQ(kv_->CheckIntegrity(), ""); }

  std::unique_ptr<core::KvCache> kv_;
  std::vector<Hash128> keys_[8];
  StepId step_ = 0;
};

// A returned block is in the tree and full, and its step has succeeded.
TEST_F(EnteredTest, TakeEnteredReturnsNewBlocksAfterTheirStep) {
  kv_ = std::make_unique<core::KvCache>(core::KvCacheConfig{
      .num_blocks = 8, .block_size = kBlock, .max_slots = 8, .max_blocks_per_slot = 64, .list_entered = true});
  core::KvCache::Entered entered;
  EXPECT_FALSE(kv_->TakeEntered(&entered));
  Bind(0, 10);
  ASSERT_TRUE(Start(0, 10).ok);
  EXPECT_FALSE(kv_->TakeEntered(&entered)) << "the step that fills it is in flight";
  End();
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(kv_->TakeEntered(&entered)) << "block " << i;
    EXPECT_EQ(entered.key, keys_[0][i]);
    EXPECT_EQ(entered.block, kv_->Table(0)[i]);
  }
  EXPECT_FALSE(kv_->TakeEntered(&entered)) << "the last block is not full";
  // Shared blocks are not new; blocks of a failed step are never returned.
  Bind(1, 14);
  ASSERT_TRUE(Start(1, 14).ok);
  End(false);
  EXPECT_FALSE(kv_->TakeEntered(&entered));
  Gone(1);
  Gone(0);
}

TEST_F(EnteredTest, TakeEnteredSkipsEvictedBlocks) {
  kv_ = std::make_unique<core::KvCache>(core::KvCacheConfig{.num_blocks = 4,
                                                            .block_size = kBlock,
                                                            .max_slots = 8,
                                                            .max_blocks_per_slot = 64,
                                                            .list_entered = true,
                                                            .remember_evicted = true});
  Bind(0, 13);
  ASSERT_TRUE(Start(0, 13).ok);
  End();
  Gone(0);
  EXPECT_FALSE(kv_->WasEvicted(keys_[0][0]));
  const std::vector<Hash128> gone = keys_[0];
  Bind(1, 13, 1);
  ASSERT_TRUE(Start(1, 13).ok);
  End();
  EXPECT_EQ(kv_->Cached(gone), 0);
  EXPECT_EQ(kv_->Cached(keys_[1]), 3);
  for (const Hash128& key : gone) EXPECT_TRUE(kv_->WasEvicted(key));
  core::KvCache::Entered entered;
  for (const Hash128& key : keys_[1]) {
    ASSERT_TRUE(kv_->TakeEntered(&entered));
    EXPECT_EQ(entered.key, key);
  }
  EXPECT_FALSE(kv_->TakeEntered(&entered));
  Gone(1);
}

}  // namespace
}  // namespace tactus::entered_test
