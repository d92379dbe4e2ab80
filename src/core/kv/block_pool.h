// The blocks of a KV cache, and the place of each. A block is in exactly one place:
//   free      holds nothing                                      (free list)
//   cached    has a key; no user, no step                        (order of eviction)
//   in use    in the table of at least one live sequence         (users > 0)
//   draining  no user, but a step in flight still touches it     (list of that step)
// Nothing allocates after construction; a record is made when its block is first used. Thread rule: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/free_ids.h"
#include "base/growing_vector.h"
#include "base/huge_pages.h"
#include "core/kv/eviction_order.h"
#include "core/kv/prefix_tree.h"

namespace tactus::core {

// The record of a block: one cache line.
struct alignas(64) KvBlock {
  static constexpr NodeId kUnlisted = -2;
  static constexpr uint32_t kNotEvictable = std::numeric_limits<uint32_t>::max();

  int32_t users = 0;         // tables that hold it
  NodeId node = kNoNode;     // the node of its key, as owner or duplicate; or kUnlisted (prefix_blocks.h)
  BlockId after = kNoBlock;  // its predecessor in the table of the sequence that fills it; valid while pending
  StepId begun_by = -1;      // the first step that may write it
  StepId computed_by = -1;   // the step that fills it completely; the block is pending until that step has ended
  StepId busy_until = -1;    // last step in flight that uses it for a sequence that has released it
  BlockId prev = kNoBlock;   // neighbours in the draining or duplicates list
  BlockId next = kNoBlock;
  uint32_t evicted_at = kNotEvictable;  // place in the order of eviction, while cached
  BlockId first_duplicate = kNoBlock;   // of an owner: list through the blocks, oldest first
  BlockId last_duplicate = kNoBlock;
  bool owns = false;  // it is its node's owner; repeated here so that a release reads no node

  bool filed() const { return node >= 0; }  // in the tree
  bool keyed() const { return node != kNoNode; }
};

// Where EvictionOrder stores the places.
struct EvictedAt {
  KvBlock* blocks;
  uint32_t& operator()(BlockId b) const { return blocks[static_cast<size_t>(b)].evicted_at; }
};

class BlockPool {
 public:
  using CachedBlocks = EvictionOrder<EvictedAt>;
  // Most steps in flight at once; far more than any pipeline has.
  static constexpr size_t kMostStepsInFlight = 256;

  // `lean`: as in KvCacheConfig.
  explicit BlockPool(int64_t num_blocks, bool lean = false);

  KvBlock& operator[](BlockId b) { return blocks_[static_cast<size_t>(b)]; }
  const KvBlock& operator[](BlockId b) const { return blocks_[static_cast<size_t>(b)]; }
  int64_t size() const { return static_cast<int64_t>(free_.count()); }
  // Blocks from here on were never taken and have no record yet.
  int64_t used() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_draining() const { return num_draining_; }
  int64_t num_in_use() const { return size() - num_free() - cached_.size() - num_draining_; }
  const CachedBlocks& cached() const { return cached_; }
  // Set aside for sequences, but not drawn from the free and cached blocks yet.
  int64_t reserved() const { return reserved_; }
  int64_t available() const { return num_free() + cached_.size() - reserved_; }
  StepId ended() const { return ended_; }  // the last step whose result has arrived
  // No sequence holds the block and no step in flight uses it.
  bool Unused(BlockId b) const { return (*this)[b].users == 0 && (*this)[b].busy_until <= ended_; }

  void Reserve(int64_t count) { reserved_ += count; }
  void Unreserve(int64_t count) { reserved_ -= count; }
  // Remove a block from its place; kNoBlock: none is free, or none cached. The caller resets its record.
  BlockId TakeFree() {
    if (free_.empty()) return kNoBlock;
    const BlockId b = free_.Take();
    MakeUpTo(&blocks_, static_cast<size_t>(b));
    TACTUS_DCHECK((*this)[b].users == 0 && !(*this)[b].keyed());
    return b;
  }
  BlockId TakeOldestCached() { return cached_.TakeOldest(); }
  // One more sequence holds the block. Precondition: it is not free.
  void Use(BlockId b);
  // The last sequence has released the block: it drains, or is cached if it has a key, or else becomes free.
  // Precondition: no user; in no place.
  void Put(BlockId b);
  // As Put of an unused block with a key.
  void Cache(BlockId b) { cached_.Push(b); }
  // A block has lost its key. A cached one becomes free; a draining one does when its step ends. No effect on a block
  // in use.
  void KeyLost(BlockId b);
  // All steps up to `step` have ended: the blocks that they used are put.
  void EndSteps(StepId step);

  // Verifies that every block is in one place and that the lists are intact. Empty: no error.
  std::string CheckIntegrity() const;

 private:
  struct List {
    BlockId head = kNoBlock;
    BlockId tail = kNoBlock;
    int64_t size = 0;
  };

  List& DrainList(StepId step) { return draining_[static_cast<size_t>(step) % kMostStepsInFlight]; }
  void Push(List* list, BlockId b);
  void Unlink(List* list, BlockId b);
  void PutUnused(BlockId b);
  void Free(BlockId b) {
    (*this)[b] = KvBlock{};
    free_.Return(b);
  }
  std::string CheckDraining(size_t list) const;

  FreeIds free_;
  HugePageVector<KvBlock> blocks_;  // [used], room for all
  CachedBlocks cached_;
  std::array<List, kMostStepsInFlight> draining_;
  int64_t num_draining_ = 0;
  int64_t reserved_ = 0;
  StepId ended_ = -1;
};

}  // namespace tactus::core
