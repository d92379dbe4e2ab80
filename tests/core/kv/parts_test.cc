// Parts of KvCache by themselves.
#include <gtest/gtest.h>

#include <vector>

#include "core/kv/block_pool.h"
#include "core/kv/host_blocks.h"
#include "core/kv/key_records.h"

namespace tactus::parts_test {
namespace {

constexpr int32_t kBlock = 4;

StepPlan PlanOf(StepId step) {
  StepPlan plan;
  plan.step = step;
  return plan;
}

TEST(BlockPoolTest, ReleasedBlockDrainsUntilItsLastStepHasEnded) {
  core::BlockPool pool(2);
  const BlockId b = pool.TakeFree();
  EXPECT_EQ(b, 0) << "the lowest is used first";
  pool[b].busy_until = 3;
  pool.Put(b);
  pool.EndSteps(2);
  EXPECT_EQ(pool.num_draining(), 1);
  EXPECT_EQ(pool.num_free(), 1);
  pool.EndSteps(3);
  EXPECT_EQ(pool.num_draining(), 0);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.CheckIntegrity(), "");
}

TEST(BlockPoolTest, BlockThatLosesItsKeyBecomesFreeOnlyIfItIsCached) {
  core::BlockPool pool(2);
  const BlockId cached = pool.TakeFree(), used = pool.TakeFree();
  pool[cached].node = core::KvBlock::kUnlisted;
  pool[used].users = 1;
  pool.Put(cached);
  EXPECT_EQ(pool.cached().size(), 1);
  EXPECT_EQ(pool.available(), 1);
  for (const BlockId b : {cached, used}) {
    pool[b].node = core::kNoNode;
    pool.KeyLost(b);
  }
  EXPECT_EQ(pool.cached().size(), 0);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_in_use(), 1);
}

TEST(HostBlocksTest, RestoreCopiesTheSavedBlocksFromTheFirstMissingOneOn) {
  core::HostBlocks host(4, 0, kBlock);
  core::SavedKv saved;
  const std::vector<BlockId> before = {7, 8, 9}, after = {17, 18, 19};
  StepPlan out = PlanOf(1), in = PlanOf(2);
  ASSERT_TRUE(host.Save(before.data(), 10, &saved, &out));
  EXPECT_EQ(saved.tokens, 10);
  EXPECT_EQ(host.num_free(), 1);
  ASSERT_EQ(out.swap_outs.size(), 3u);
  host.Restore(after.data(), 1, &saved, &in);
  ASSERT_EQ(in.swap_ins.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(in.swap_ins[i].block, after[i + 1]);
    EXPECT_EQ(in.swap_ins[i].host_block, out.swap_outs[i + 1].host_block) << "block " << i + 1;
  }
  EXPECT_EQ(in.swap_ins[1].tokens, 2) << "the last block is partial";
  EXPECT_EQ(saved.tokens, 0);
  EXPECT_EQ(host.num_free(), 4);
}

TEST(HostBlocksTest, BlocksReadByAPlanAreNotWrittenByTheSamePlan) {
  core::HostBlocks host(1, 0, kBlock);
  core::SavedKv first, second;
  const BlockId table[] = {5};
  StepPlan out = PlanOf(1), in = PlanOf(2), next = PlanOf(3);
  ASSERT_TRUE(host.Save(table, kBlock, &first, &out));
  EXPECT_FALSE(host.Save(table, kBlock, &second, &in)) << "no block is free";
  host.Restore(table, 0, &first, &in);
  EXPECT_FALSE(host.Save(table, kBlock, &second, &in)) << "the plan reads the block";
  EXPECT_TRUE(host.Save(table, kBlock, &second, &next));
}

TEST(HostBlocksTest, SavesLeaveBlocksToImports) {
  core::HostBlocks host(2, 2, kBlock);
  core::SavedKv saved;
  const BlockId table[] = {5};
  StepPlan plan = PlanOf(1);
  EXPECT_FALSE(host.Save(table, kBlock, &saved, &plan));
  std::vector<BlockId> reserved;
  ASSERT_TRUE(host.Reserve(1, 0, &reserved));
  host.Keep(reserved, 3, &saved);
  EXPECT_EQ(saved.tokens, 3);
  EXPECT_EQ(host.num_free(), 1);
  host.Drop(&saved);
  EXPECT_EQ(host.num_free(), 2);
}

TEST(EnteredKeysTest, FullQueueDropsItsOldestKey) {
  core::EnteredKeys keys(2);
  for (uint64_t i = 1; i <= 3; ++i) keys.Add({i, i});
  for (uint64_t i = 2; i <= 3; ++i) {
    ASSERT_FALSE(keys.empty());
    EXPECT_EQ(keys.oldest(), (Hash128{i, i}));
    keys.PopOldest();
  }
  EXPECT_TRUE(keys.empty());
}

TEST(EvictedKeysTest, NewKeyReplacesTheKeyOfItsPlace) {
  core::EvictedKeys keys(4);
  const Hash128 older{1, 20}, newer{5, 40};
  EXPECT_FALSE(keys.Has(older));
  keys.Add(older);
  EXPECT_TRUE(keys.Has(older));
  keys.Add(newer);
  EXPECT_TRUE(keys.Has(newer));
  EXPECT_FALSE(keys.Has(older));
}

}  // namespace
}  // namespace tactus::parts_test
