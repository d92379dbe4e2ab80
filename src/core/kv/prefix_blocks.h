// What the blocks of a KV cache hold. A full block with a known key is in the prefix tree, where matches find it, or
// unlisted. Blocks that wait for their batch (entering_blocks.h) are not in the tree yet. Blocks after one that a
// failed step did not fill stay private.
//
// The parent of a node in use is in use, and the parent of a draining node is in use or drains at least as long. So
// cached nodes form the bottom of the tree. A sequence releases its last block first, so children are evicted before
// parents: the oldest cached block is always a leaf.
//
// A node has one owner block, and possibly duplicates: blocks of live sequences that computed the same tokens at the
// same time and stay private. When the owner's last user leaves, a duplicate becomes the owner, so that the parent of a
// node in use is always in use.
//
// An unlisted block has a key that is not computed yet (OwnKeys): cached when it has no user, but never found.
//
// Nothing allocates after construction, except in a lean cache (KvCacheConfig). Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/prefetch.h"
#include "core/kv/block_pool.h"
#include "core/kv/key_records.h"
#include "core/kv/prefix_tree.h"

namespace tactus::core {

class PrefixBlocks {
 public:
  // `list_entered`, `remember_evicted`, `lean`: as in KvCacheConfig.
  PrefixBlocks(int64_t num_blocks, bool list_entered, bool remember_evicted, bool lean = false);

  const KvBlock& operator[](BlockId b) const { return pool_[b]; }
  const BlockPool& pool() const { return pool_; }
  const PrefixTree& tree() const { return tree_; }
  const EvictedKeys& evicted_keys() const { return evicted_keys_; }
  int64_t evictions() const { return evictions_; }
  void PrefetchBlock(BlockId b) const { Prefetch(&pool_[b]); }

  void Reserve(int64_t count) { pool_.Reserve(count); }
  void Unreserve(int64_t count) { pool_.Unreserve(count); }
  // Called before Take: `count` blocks are taken for the step `begun_by`.
  void PrefetchTakes(int32_t count, StepId begun_by) {
    if (begun_by != asked_by_) PrefetchFirstTakes(count, begun_by);
  }
  // A free block, else evicts one, for a table in which it follows `after`. Precondition: one is available.
  BlockId Take(BlockId after, StepId begun_by) {
    BlockId b = pool_.TakeFree();
    if (b == kNoBlock) b = Evict();
    pool_[b] = KvBlock{.users = 1, .after = after, .begun_by = begun_by};
    return b;
  }
  // One more sequence holds the block.
  void Use(BlockId b) { pool_.Use(b); }
  // A sequence releases the block; steps up to `last_step` still use it.
  void Unuse(BlockId b, StepId last_step);
  void SetBegunBy(BlockId b, StepId step) { pool_[b].begun_by = step; }
  // `step` fills the block completely; -1: none does.
  void SetComputedBy(BlockId b, StepId step) { pool_[b].computed_by = step; }
  void EndSteps(StepId step) { pool_.EndSteps(step); }

  enum class Entry : uint8_t {
    kNew,        // the key was not in the tree; the block is its owner
    kDuplicate,  // the key was in the tree; the block becomes the owner if the previous one has no user
    kRefused,    // the key has another parent in the tree; the block does not change
  };
  // Enters a private or unlisted block in the tree.
  Entry Enter(BlockId b, const Hash128& key, NodeId parent);
  void MarkUnlisted(BlockId b) { pool_[b].node = KvBlock::kUnlisted; }
  // Makes an unlisted block or a duplicate private. No effect on owners and private blocks.
  void Separate(BlockId b);
  // Makes the owner and the duplicates of a node private. Precondition: no children.
  void RemoveNode(NodeId node);

  // As KvCache::TakeEntered.
  bool TakeEntered(BlockId* block, Hash128* key);

  // Verifies the tree against the records of the blocks. Empty: no error.
  std::string CheckIntegrity() const;

 private:
  void PrefetchFirstTakes(int32_t count, StepId begun_by);  // called for the first takes of a step only
  BlockId Evict();
  void PrefetchEvictions();  // prefetches the blocks that are evicted next
  void AddDuplicate(NodeId node, BlockId b);
  void DropDuplicate(BlockId b);
  void HandOver(BlockId owner);  // makes the oldest duplicate, if any, the owner
  std::string CheckNode(NodeId n) const;
  std::string CheckDuplicates(NodeId n) const;
  std::string CheckFiled() const;
  std::string CheckCached() const;

  BlockPool pool_;
  PrefixTree tree_;
  // How far the blocks to evict, their nodes and the nodes' places in the table are prefetched, and for which step.
  BlockPool::CachedBlocks::Ahead asked_block_, asked_node_, asked_place_;
  StepId asked_by_ = -1;
  int64_t evictions_ = 0;
  EnteredKeys entered_keys_;
  EvictedKeys evicted_keys_;
};

}  // namespace tactus::core
