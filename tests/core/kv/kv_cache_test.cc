#include "core/kv/kv_cache.h"

#include <gtest/gtest.h>

#include "core/kv/block_key.h"

namespace tactus::kv_cache_test {
namespace {

constexpr Hash128 kSecret{3, 4};

// Prompts by length and family; block size 4.
class KvCacheTest : public testing::Test {
 protected:
  static constexpr int32_t kBlock = 4;

  void Make(int64_t blocks, bool caching = true) {
    kv_ = std::make_unique<core::KvCache>(core::KvCacheConfig{blocks, kBlock, 8, 64, caching});
  }
  // Binds slot `s` to a prompt of `tokens` times the token `family`.
  void Bind(SlotId s, int32_t tokens, TokenId family = 0, const char* salt = "") {
    keys_[s].clear();
    keys_[s].reserve(64);
    core::ExtendBlockKeys(kSecret, core::RootKey(kSecret, "m", "", salt), std::vector<TokenId>(tokens, family), kBlock,
                          &keys_[s]);
    kv_->Bind(s, &keys_[s]);
  }
  core::KvStart Start(SlotId s, int32_t tokens, int32_t reserve = 0) {
    StepPlan plan;
    plan.step = step_;
    const core::KvStart start = kv_->Start(s, tokens, tokens, std::max(reserve, tokens), kNoSlot, &plan);
    if (start.ok) kv_->MarkPending(s, tokens, step_);
    return start;
  }
  void End(bool ok = true) { kv_->StepEnded(step_++, ok, &recompute_); }
  void Gone(SlotId s, StepId last_step = -1) {
    kv_->Release(s, last_step);
    kv_->Unbind(s);
  }
  std::vector<BlockId> Table(SlotId s) const { return {kv_->Table(s).begin(), kv_->Table(s).end()}; }
  void TearDown() override { EXPECT_EQ(kv_->CheckIntegrity(), ""); }

  std::unique_ptr<core::KvCache> kv_;
  std::vector<Hash128> keys_[8];
  std::vector<SlotId> recompute_;
  StepId step_ = 0;
};

TEST_F(KvCacheTest, LastPromptTokenIsAlwaysComputed) {
  Make(32);
  Bind(0, 12);
  Start(0, 12);
  End();
  for (int32_t p = 1; p <= 12; ++p) {
    Bind(1, p);
    EXPECT_EQ(kv_->PeekMatch(1, p), (p - 1) / kBlock * kBlock) << p;
    kv_->Unbind(1);
  }
}

TEST_F(KvCacheTest, DifferentSaltsAndFamiliesShareNothing) {
  Make(32);
  Bind(0, 12, 0, "alice");
  Start(0, 12);
  End();
  Bind(1, 12, 0, "bob");
  EXPECT_EQ(kv_->PeekMatch(1, 12), 0);
  Bind(2, 12, 1, "alice");
  EXPECT_EQ(kv_->PeekMatch(2, 12), 0);
  Bind(3, 12, 0, "alice");
  EXPECT_EQ(kv_->PeekMatch(3, 12), 8);
  kv_->Bind(4, nullptr);
  EXPECT_EQ(kv_->PeekMatch(4, 12), 0);
}

TEST_F(KvCacheTest, PendingBlockMatchesWithinItsOwnPlan) {
  Make(32);
  Bind(0, 9);
  Bind(1, 9);
  Start(0, 9);
  EXPECT_EQ(Start(1, 9).matched_tokens, 8);
  EXPECT_EQ(Table(0)[0], Table(1)[0]);
  EXPECT_EQ(Table(0)[1], Table(1)[1]);
  EXPECT_NE(Table(0)[2], Table(1)[2]);
  EXPECT_EQ(kv_->Stats().blocks_in_use, 4);
  EXPECT_EQ(kv_->Stats().prefix_hit_tokens, 8);
  EXPECT_EQ(kv_->Stats().prefix_query_tokens, 18);
}

TEST_F(KvCacheTest, StartCostCountsPinnedBlocks) {
  Make(4);
  Bind(0, 9);
  Start(0, 9);
  End();
  Gone(0);  // 2 cached, 2 free
  EXPECT_EQ(kv_->Stats().blocks_cached, 2);
  EXPECT_EQ(kv_->blocks_available(), 4);
  Bind(1, 13);
  EXPECT_EQ(kv_->StartCost(1, 13, 13, 13), 4);  // 2 pinned and 2 new
  Bind(2, 17);
  EXPECT_EQ(kv_->StartCost(2, 17, 17, 17), 5);
  EXPECT_FALSE(Start(2, 17).ok);
  EXPECT_EQ(kv_->Stats().blocks_cached, 2);  // and nothing was evicted
  EXPECT_EQ(Start(1, 13).matched_tokens, 8);
  EXPECT_EQ(kv_->blocks_available(), 0);
}

TEST_F(KvCacheTest, ReservedBlocksAreUnavailableUntilDrawn) {
  Make(10);
  Bind(0, 5);
  EXPECT_TRUE(Start(0, 5, 30).ok);  // 2 blocks now, 8 in all
  EXPECT_EQ(kv_->blocks_held(0), 2);
  EXPECT_EQ(kv_->Stats().blocks_reserved, 6);
  EXPECT_EQ(kv_->blocks_available(), 2);
  Bind(1, 12, 1);
  EXPECT_FALSE(Start(1, 12).ok);             // 3 blocks; 8 are free, but 6 of them reserved
  EXPECT_TRUE(kv_->Extend(0, 29, nullptr));  // 8 blocks, all from the reservation
  EXPECT_EQ(kv_->Stats().blocks_reserved, 0);
  EXPECT_EQ(kv_->blocks_available(), 2);
  EXPECT_TRUE(kv_->Extend(0, 40, nullptr));
  EXPECT_FALSE(kv_->Extend(0, 41, nullptr));
  EXPECT_EQ(kv_->blocks_held(0), 10);
  End();
  Gone(0);
  EXPECT_EQ(kv_->blocks_available(), 10);
}

TEST_F(KvCacheTest, ReleaseFreesUnusedReservation) {
  Make(10);
  Bind(0, 5);
  Start(0, 5, 40);
  EXPECT_EQ(kv_->blocks_available(), 0);
  End();
  Gone(0);
  EXPECT_EQ(kv_->Stats().blocks_reserved, 0);
  EXPECT_EQ(kv_->blocks_available(), 10);
}

TEST_F(KvCacheTest, EvictsLeastRecentlyUsedLeavesBeforeParents) {
  Make(6);
  Bind(0, 13, 0);
  Start(0, 13);  // 3 full blocks and a partial one
  End();
  Gone(0);
  Bind(1, 9, 1);
  Start(1, 9);  // 2 full and a partial one
  End();
  Gone(1);  // cached, oldest first: family 0 blocks 2, 1, 0, family 1 blocks 1, 0
  EXPECT_EQ(kv_->Stats().blocks_cached, 5);
  Bind(2, 8, 2);
  Start(2, 8);  // one free, one evicted: the deepest of family 0
  EXPECT_EQ(kv_->Stats().evictions, 1);
  Bind(3, 13, 0);
  EXPECT_EQ(kv_->PeekMatch(3, 13), 8);
  Bind(4, 9, 1);
  EXPECT_EQ(kv_->PeekMatch(4, 9), 8);
  EXPECT_TRUE(kv_->Extend(2, 16, nullptr));  // two more: the rest of family 0
  EXPECT_EQ(kv_->PeekMatch(3, 13), 0);
  EXPECT_EQ(kv_->PeekMatch(4, 9), 8);
}

TEST_F(KvCacheTest, DrainingBlocksAreFreedAfterTheirStep) {
  Make(4);
  Bind(0, 9);
  Start(0, 9);
  Gone(0, step_);  // cancelled while the step runs
  EXPECT_EQ(kv_->Stats().blocks_draining, 3);
  EXPECT_EQ(kv_->blocks_available(), 1);
  Bind(1, 9);
  EXPECT_EQ(kv_->StartCost(1, 9, 9, 9), 1);  // a draining prefix matches without cost
  End();
  EXPECT_EQ(kv_->Stats().blocks_draining, 0);
  EXPECT_EQ(kv_->Stats().blocks_cached, 2);
  EXPECT_EQ(kv_->blocks_available(), 4);
}

TEST_F(KvCacheTest, BlockDrainsUntilTheLastStepOfAllFormerUsers) {
  Make(8);
  Bind(0, 9);
  Start(0, 9);
  End();
  Bind(1, 9);
  Start(1, 9);     // step 1 reads the shared blocks for slot 1
  Gone(1, step_);  // slot 1 releases them while step 1 runs
  Gone(0, -1);     // the other user is idle
  EXPECT_EQ(kv_->Stats().blocks_draining, 3);
  End();
  EXPECT_EQ(kv_->Stats().blocks_draining, 0);
  EXPECT_EQ(kv_->Stats().blocks_cached, 2);
}

TEST_F(KvCacheTest, FailureCascadesToDependants) {
  Make(32);
  Bind(0, 9);
  Start(0, 9);  // step 0: producer
  Bind(1, 13);
  EXPECT_EQ(Start(1, 13).matched_tokens, 8);  // same plan: depends on it
  step_ = 1;
  Bind(2, 17);
  EXPECT_EQ(Start(2, 17).matched_tokens, 12);  // next plan, in flight too: depends on slot 1's block
  Bind(3, 9, 7);
  Start(3, 9);  // unrelated
  kv_->StepEnded(0, false, &recompute_);
  EXPECT_EQ(recompute_, (std::vector<SlotId>{0, 1, 2}));
  Bind(4, 17);
  EXPECT_EQ(kv_->PeekMatch(4, 17), 0);  // none of its blocks can be found
  Bind(5, 9, 7);
  EXPECT_EQ(kv_->PeekMatch(5, 9), 8);
  for (const SlotId s : recompute_) kv_->Release(s, s == 2 ? 1 : -1);
  EXPECT_EQ(kv_->CheckIntegrity(), "");
  kv_->StepEnded(1, true, &recompute_);
  EXPECT_EQ(kv_->Stats().blocks_in_use, 3);
  EXPECT_EQ(kv_->Stats().blocks_cached, 0);
}

TEST_F(KvCacheTest, DuplicateSurvivesFailureOfTheOwner) {
  Make(32);
  Bind(0, 5);
  Bind(1, 5);
  kv_->Start(0, 5, 5, 5, kNoSlot, nullptr);
  StepPlan plan;
  plan.step = 1;
  kv_->Start(1, 5, 5, 5, kNoSlot, &plan);  // started before anything could match
  kv_->MarkPending(0, 5, 0);
  kv_->MarkPending(1, 5, 1);  // the same block again, one step later
  EXPECT_NE(Table(0)[0], Table(1)[0]);
  kv_->StepEnded(0, false, &recompute_);
  EXPECT_EQ(recompute_, std::vector<SlotId>{0});  // slot 1 continues with its private block
  Bind(2, 5);
  EXPECT_EQ(kv_->PeekMatch(2, 5), 0);
  EXPECT_EQ(kv_->CheckIntegrity(), "");
}

TEST_F(KvCacheTest, DuplicateBecomesOwnerOfTheNode) {
  Make(32);
  Bind(0, 9);
  Bind(1, 9);
  kv_->Start(0, 9, 9, 9, kNoSlot, nullptr);
  kv_->Start(1, 9, 9, 9, kNoSlot, nullptr);
  kv_->MarkPending(0, 9, 0);
  kv_->MarkPending(1, 9, 0);
  End();
  const BlockId second = Table(1)[0];
  Gone(0);
  EXPECT_EQ(kv_->CheckIntegrity(), "");
  EXPECT_EQ(kv_->Stats().blocks_cached, 0);  // its blocks are free; those of slot 1 own the nodes
  Bind(2, 9);
  EXPECT_EQ(Start(2, 9).matched_tokens, 8);
  EXPECT_EQ(Table(2)[0], second);
}

TEST_F(KvCacheTest, LiveBlockReplacesCachedOwner) {
  Make(32);
  Bind(0, 9);
  Bind(1, 9);
  kv_->Start(1, 9, 9, 9, kNoSlot, nullptr);  // nothing to match yet
  Start(0, 9);
  End();
  Gone(0);
  EXPECT_EQ(kv_->Stats().blocks_cached, 2);
  kv_->MarkPending(1, 9, step_);
  EXPECT_EQ(kv_->Stats().blocks_cached, 0);
  EXPECT_EQ(kv_->CheckIntegrity(), "");
  End();
  Gone(1);
  EXPECT_EQ(kv_->Stats().blocks_cached, 2);
}

TEST_F(KvCacheTest, ForkSharesFullBlocksAndCopiesThePartialOne) {
  for (const bool caching : {true, false}) {
    for (const int32_t p : {1, 2, 4, 5, 8, 11}) {
      SCOPED_TRACE(std::to_string(p) + (caching ? " cached" : ""));
      Make(32, caching);
      step_ = 0;
      Bind(0, p);
      Start(0, p);
      End();
      Bind(1, p);
      StepPlan plan;
      const core::KvStart start = kv_->Start(1, p, p, p, 0, &plan);
      ASSERT_TRUE(start.ok);
      EXPECT_EQ(start.matched_tokens, p - 1);
      const int32_t shared = (p - 1) / kBlock;
      for (int32_t i = 0; i < shared; ++i) EXPECT_EQ(Table(0)[i], Table(1)[i]);
      EXPECT_NE(Table(0)[shared], Table(1)[shared]);
      if (const int32_t rest = p - 1 - shared * kBlock; rest > 0) {
        ASSERT_EQ(plan.copies.size(), 1u);
        EXPECT_EQ(plan.copies[0].from, Table(0)[shared]);
        EXPECT_EQ(plan.copies[0].to, Table(1)[shared]);
        EXPECT_EQ(plan.copies[0].tokens, rest);
      } else {
        EXPECT_TRUE(plan.copies.empty());
      }
      kv_->MarkPending(1, p, step_);
      EXPECT_EQ(kv_->CheckIntegrity(), "");
      End();
      Gone(0);
      EXPECT_EQ(kv_->blocks_held(1), shared + 1);
      Gone(1);
      EXPECT_EQ(kv_->Stats().blocks_in_use, 0);
      EXPECT_EQ(kv_->Stats().blocks_cached, caching ? p / kBlock : 0);
    }
  }
}

TEST_F(KvCacheTest, FailureOfAnyStepThatFillsABlockVoidsIt) {
  Make(32);
  Bind(0, 9);
  Bind(3, 9, 7);
  StepPlan plan;
  plan.step = 0;
  kv_->Start(0, 9, 2, 2, kNoSlot, &plan);  // step 0 writes half of the first block
  plan.step = 1;
  kv_->Extend(0, 9, &plan);
  kv_->MarkPending(0, 9, 1);  // step 1 completes it
  kv_->Start(3, 9, 9, 9, kNoSlot, &plan);
  kv_->MarkPending(3, 9, 1);
  kv_->Release(0, 1);  // its request has ended with step 0's error
  kv_->Unbind(0);
  kv_->StepEnded(0, false, &recompute_);
  EXPECT_TRUE(recompute_.empty());
  Bind(1, 9);
  EXPECT_EQ(kv_->PeekMatch(1, 9), 0);
  Bind(2, 9, 7);
  EXPECT_EQ(kv_->PeekMatch(2, 9), 8);  // blocks filled by step 1 alone are valid
}

TEST_F(KvCacheTest, FailedItemVoidsOnlyItsDependants) {
  Make(32);
  Bind(0, 9);
  Start(0, 9);
  Bind(1, 13);
  Start(1, 13);
  Bind(2, 9, 5);
  Start(2, 9);
  kv_->ItemFailed(0, 0, 0, &recompute_);
  EXPECT_EQ(recompute_, (std::vector<SlotId>{0, 1}));
  for (const SlotId s : recompute_) kv_->Release(s, 0);
  kv_->StepEnded(0, true, &recompute_);
  Bind(3, 9, 5);
  EXPECT_EQ(kv_->PeekMatch(3, 9), 8);
  Bind(4, 9);
  EXPECT_EQ(kv_->PeekMatch(4, 9), 0);
}

TEST_F(KvCacheTest, RollbackRemovesVoidBlocksFromTheTree) {
  Make(32);
  Bind(0, 12);
  Start(0, 12);
  kv_->Rollback(0, 6);
  EXPECT_EQ(kv_->CheckIntegrity(), "");
  EXPECT_EQ(kv_->blocks_held(0), 3);
  Bind(1, 13);
  EXPECT_EQ(kv_->PeekMatch(1, 13), 4);
  kv_->MarkPending(0, 12, 0);
  EXPECT_EQ(kv_->PeekMatch(1, 13), 12);
}

TEST_F(KvCacheTest, BlocksWithLateKeysEnterTheTreeLater) {
  Make(32);
  Bind(0, 4);
  Start(0, 4);
  End();
  EXPECT_TRUE(kv_->Extend(0, 9, nullptr));
  kv_->MarkPending(0, 8, step_);  // chained: the tokens are still on the device
  Bind(1, 9);
  EXPECT_EQ(kv_->PeekMatch(1, 9), 4);
  End();
  keys_[0].push_back(keys_[1][1]);  // the tokens have reached the host
  kv_->MarkPending(0, 9, step_);
  EXPECT_EQ(kv_->PeekMatch(1, 9), 8);
  End();
}

// A key identifies its chain. Keys of a broken recording may not, but must not affect other sequences.
TEST_F(KvCacheTest, UnknownKeyInsideAChainIsHarmless) {
  Make(32);
  Bind(0, 17);
  Start(0, 17);
  Bind(1, 17);
  keys_[1][1] = Hash128{1, 1};
  EXPECT_EQ(Start(1, 17).matched_tokens, 16) << "the last key is in the tree with all its ancestors";
  EXPECT_EQ(Table(1)[1], Table(0)[1]);
  End();
  for (const SlotId s : {0, 1}) Gone(s);
}

TEST_F(KvCacheTest, KeyAtTheWrongDepthIsNoMatch) {
  Make(32);
  Bind(0, 17);
  Start(0, 17);
  Bind(1, 17);
  keys_[1][1] = keys_[0][2];
  keys_[1].resize(2);
  EXPECT_EQ(Start(1, 17).matched_tokens, 4);
  Bind(2, 17, 1);
  keys_[2][3] = keys_[0][3];  // at the right depth, after other blocks: it stays private
  EXPECT_EQ(Start(2, 17).matched_tokens, 0);
  End();
  Gone(0);
  Gone(2);
  Bind(3, 17);
  EXPECT_EQ(kv_->PeekMatch(3, 17), 16);
  Gone(1);
}

TEST_F(KvCacheTest, CachingOffSharesNothingAndKeepsNothing) {
  Make(8, false);
  Bind(0, 9);
  Start(0, 9);
  End();
  Bind(1, 9);
  EXPECT_EQ(kv_->PeekMatch(1, 9), 0);
  EXPECT_EQ(kv_->StartCost(1, 9, 9, 9), 3);
  Gone(0);
  EXPECT_EQ(kv_->Stats().blocks_free, 8);
  EXPECT_EQ(kv_->Stats().prefix_query_tokens, 0);
}

TEST_F(KvCacheTest, TableUpdatesListExactlyTheNewBlocks) {
  Make(16);
  Bind(0, 6);
  StepPlan plan;
  kv_->Start(0, 6, 6, 6, kNoSlot, &plan);
  kv_->Extend(0, 8, &plan);  // still covered
  kv_->Extend(0, 9, &plan);
  ASSERT_EQ(plan.table_updates.size(), 2u);
  EXPECT_EQ(plan.table_updates[0].first_index, 0);
  EXPECT_EQ(plan.table_updates[0].count, 2);
  EXPECT_EQ(plan.table_updates[1].first_index, 2);
  EXPECT_EQ(plan.table_updates[1].count, 1);
  EXPECT_EQ(plan.table_updates[1].offset, 2);
  EXPECT_EQ(plan.table_blocks, Table(0));
}

// --- swap ---

class KvSwapTest : public KvCacheTest {
 protected:
  void MakeWithHost(int64_t blocks, int64_t host_blocks) {
    kv_ = std::make_unique<core::KvCache>(core::KvCacheConfig{blocks, kBlock, 8, 64, true, host_blocks});
  }
  bool SwapOut(SlotId s, int32_t tokens) {
    plan_.step = step_;
    return kv_->SwapOut(s, tokens, &plan_);
  }
  core::KvStart Back(SlotId s, int32_t tokens) {
    plan_.step = step_;
    return kv_->Start(s, tokens, tokens, tokens, kNoSlot, &plan_);
  }
  void Evict(int32_t tokens) {  // with a short-lived sequence of other tokens
    Bind(7, tokens, 99);
    ASSERT_TRUE(Start(7, tokens).ok);
    Gone(7);
  }
  StepPlan plan_;
};

TEST_F(KvSwapTest, ComputedPositionsAreSavedAndRestored) {
  MakeWithHost(8, 4);
  Bind(0, 11);
  Start(0, 10);
  End();
  const std::vector<BlockId> table = Table(0);
  ASSERT_TRUE(SwapOut(0, 10));
  ASSERT_EQ(plan_.swap_outs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(plan_.swap_outs[i].block, table[i]);
  EXPECT_EQ(plan_.swap_outs[2].tokens, 2);
  EXPECT_EQ(kv_->blocks_available(), 8);
  EXPECT_EQ(kv_->SwappedTokens(0), 10);
  EXPECT_EQ(kv_->swap_blocks_free(), 1);
  End();
  Evict(32);  // nothing stays cached
  End();
  EXPECT_EQ(kv_->PeekMatch(0, 11), 10);
  const core::KvStart back = Back(0, 11);
  ASSERT_TRUE(back.ok);
  EXPECT_EQ(back.matched_tokens, 10);
  ASSERT_EQ(plan_.swap_ins.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plan_.swap_ins[i].block, Table(0)[i]);
    EXPECT_EQ(plan_.swap_ins[i].host_block, plan_.swap_outs[i].host_block);
    EXPECT_EQ(plan_.swap_ins[i].tokens, plan_.swap_outs[i].tokens);
  }
  EXPECT_EQ(kv_->SwappedTokens(0), 0);
}

TEST_F(KvSwapTest, CachedBlocksAreSharedInsteadOfCopiedBack) {
  MakeWithHost(8, 4);
  Bind(0, 11);
  Start(0, 10);
  End();
  const std::vector<BlockId> table = Table(0);
  ASSERT_TRUE(SwapOut(0, 10));
  End();
  ASSERT_TRUE(Back(0, 11).ok);
  ASSERT_EQ(plan_.swap_ins.size(), 1u);  // the partial block
  EXPECT_EQ(plan_.swap_ins[0].tokens, 2);
  EXPECT_EQ(Table(0)[0], table[0]);
  EXPECT_EQ(Table(0)[1], table[1]);
}

TEST_F(KvSwapTest, SwapOutWithoutSpaceChangesNothing) {
  MakeWithHost(8, 2);
  Bind(0, 11);
  Start(0, 10);
  End();
  EXPECT_FALSE(SwapOut(0, 10));
  EXPECT_EQ(kv_->blocks_held(0), 3);
  EXPECT_TRUE(plan_.swap_outs.empty());
  EXPECT_FALSE(SwapOut(0, 0));  // nothing to save
  Make(8);                      // no swap space at all
  Bind(0, 11);
  Start(0, 10);
  End();
  EXPECT_FALSE(SwapOut(0, 4));
}

// A swap-out runs before the swap-ins of its plan, so it must not write host blocks that they read.
TEST_F(KvSwapTest, HostBlockReadByAPlanIsWrittenByTheNextOne) {
  MakeWithHost(8, 1);
  Bind(0, 5, 0);
  Bind(1, 5, 1);
  Start(0, 4);
  Start(1, 4);
  End();
  ASSERT_TRUE(SwapOut(0, 4));
  End();
  Evict(28);
  End();
  ASSERT_TRUE(Back(0, 5).ok);
  ASSERT_EQ(plan_.swap_ins.size(), 1u);
  EXPECT_FALSE(SwapOut(1, 4));
  End();
  EXPECT_TRUE(SwapOut(1, 4));
}

TEST_F(KvSwapTest, FailedStepLosesTheKvItShouldSave) {
  MakeWithHost(8, 4);
  Bind(0, 11);
  Start(0, 10);
  End();
  ASSERT_TRUE(SwapOut(0, 10));
  End(false);
  EXPECT_EQ(recompute_, std::vector<SlotId>{0});
  EXPECT_EQ(kv_->SwappedTokens(0), 0);
  EXPECT_EQ(kv_->swap_blocks_free(), 4);
}

// Host blocks filled from outside are restored like swapped-out ones.
TEST_F(KvSwapTest, ImportRestoresLikeASwapOut) {
  MakeWithHost(8, 5);
  std::vector<BlockId> room;
  EXPECT_FALSE(kv_->ReserveHost(6, &room));
  EXPECT_TRUE(room.empty()) << "no partial reservation";
  ASSERT_TRUE(kv_->ReserveHost(2, &room));
  ASSERT_TRUE(kv_->ReserveHost(2, &room));
  EXPECT_EQ(kv_->swap_blocks_free(), 1);
  EXPECT_EQ(kv_->CheckIntegrity(), "");
  kv_->ReturnHost(std::span(room).subspan(3));
  room.resize(3);
  Bind(0, 11);
  kv_->KeepImported(0, room, 10);
  EXPECT_EQ(kv_->CheckIntegrity(), "");
  EXPECT_EQ(kv_->SwappedTokens(0), 10);
  const core::KvStart back = Back(0, 11);
  ASSERT_TRUE(back.ok);
  EXPECT_EQ(back.matched_tokens, 10);
  ASSERT_EQ(plan_.swap_ins.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(plan_.swap_ins[i].host_block, room[i]) << "in another order";
  EXPECT_EQ(plan_.swap_ins[2].tokens, 2);
  End();
  EXPECT_EQ(kv_->CheckIntegrity(), "");
}

TEST_F(KvSwapTest, SwapOutLeavesHostBlocksForImports) {
  kv_ = std::make_unique<core::KvCache>(core::KvCacheConfig{8, kBlock, 8, 64, true, 4, 2});
  Bind(0, 11);
  Start(0, 10);
  End();
  EXPECT_FALSE(SwapOut(0, 10)) << "it needs three of two blocks";
  std::vector<BlockId> room;
  ASSERT_TRUE(kv_->ReserveHost(2, &room));
  EXPECT_FALSE(SwapOut(0, 10));
  EXPECT_TRUE(SwapOut(0, 8)) << "the import has its reserved blocks";
}

TEST_F(KvSwapTest, OnlyBlocksOfStepsThatHaveEndedAreFinished) {
  MakeWithHost(8, 4);
  Bind(0, 11);
  Start(0, 10);
  EXPECT_EQ(kv_->FinishedBlocks(0, 10), 0) << "their step is in flight";
  End();
  EXPECT_EQ(kv_->FinishedBlocks(0, 10), 2);
  EXPECT_EQ(kv_->FinishedBlocks(0, 7), 1) << "the second block is not fully computed";
}

}  // namespace
}  // namespace tactus::kv_cache_test
