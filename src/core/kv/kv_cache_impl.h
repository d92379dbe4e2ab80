// The implementation of KvCache, shared by kv_cache.cc (operations), kv_prefix.cc (the tree), kv_swap.cc (host memory),
// kv_failure.cc (failed steps) and kv_integrity.cc.
//
// A block is in exactly one place:
//   free      holds nothing                                      (free list)
// cached    owner of a tree node or unlisted, no user, no step (lru)
//   in use    in the table of at least one live sequence         (users > 0)
//   draining  no user, but a step in flight still touches it     (list of that step)
// The parent of a node in use is in use, and the parent of a draining node is in use or drains at least as long. So
// cached nodes form the bottom of the tree. A sequence releases its last block first, so children are evicted before
// parents: the oldest cached block is always a leaf.
//
// A node has one owner block, and possibly duplicates: blocks of live sequences that computed the same tokens at the
// same time and stay private. When the owner's last user leaves, a duplicate becomes the owner, so that the parent of a
// node in use is always in use.
//
// Blocks that a plan marks as pending enter the tree in batches (EnterTogether), because each insertion alone would
// wait for a cache miss in the tree's table. Every operation whose result depends on the tree enters the waiting blocks
// first.
//
// A block of a sequence with OwnKeys is unlisted instead of in the tree: cached when it has no user, but never found.
// When the sequence releases its blocks and may start again, they enter the tree first (MakeFindable).
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/huge_pages.h"
#include "base/prefetch.h"
#include "core/kv/eviction_order.h"
#include "core/kv/kv_cache.h"
#include "core/kv/prefix_tree.h"

namespace tactus::core {

struct KvCache::Impl {
  static constexpr NodeId kUnlisted = -2;
  static constexpr uint32_t kNotEvictable = std::numeric_limits<uint32_t>::max();
  // One cache line per block.
  struct alignas(64) Block {
    int32_t users = 0;         // tables that hold it
    NodeId node = kNoNode;     // the node of its key, as owner or duplicate; or kUnlisted
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
  };
  // Where EvictionOrder stores the places.
  struct EvictedAt {
    Block* blocks;
    uint32_t& operator()(BlockId b) const { return blocks[static_cast<size_t>(b)].evicted_at; }
  };
  struct List {
    BlockId head = kNoBlock;
    BlockId tail = kNoBlock;
    int64_t size = 0;
  };
  struct alignas(64) Slot {  // a step reads the first cache line only
    bool bound = false;
    bool looked_up = false;  // its first start has been counted in query_tokens
    const std::vector<Hash128>* keys = nullptr;
    OwnKeys* own = nullptr;         // not null: its blocks are unlisted
    BlockId* table = nullptr;       // from Start until its blocks are released
    int32_t blocks = 0;             // entries of the table
    int32_t reserved = 0;           // reserved for it, not drawn
    int32_t marked = 0;             // leading blocks that are full or will be by the end of a step in flight
    int32_t keyed = 0;              // leading blocks that are in the tree or duplicate a node
    int32_t swapped_tokens = 0;     // positions saved in host memory; it holds no block then
    BlockId first_host = kNoBlock;  // chain through host_next, in order of position
    int32_t restored_begin = 0;     // blocks of its table that were copied back
    int32_t restored_end = 0;
    StepId saved_by = -1;  // the step that copies its KV out; kept after the KV was copied back
  };
  struct Entering {
    SlotId slot = kNoSlot;
    int32_t end = 0;  // of its blocks
  };
  // Most steps in flight at once; far more than any pipeline has.
  static constexpr size_t kMaxStepsInFlight = 256;

  explicit Impl(const KvCacheConfig& config);

  BlockId* TableOf(SlotId s) { return At(s).table; }
  const BlockId* TableOf(SlotId s) const { return At(s).table; }
  Slot& At(SlotId s) { return slots[static_cast<size_t>(s)]; }
  const Slot& At(SlotId s) const { return slots[static_cast<size_t>(s)]; }
  Block& block(BlockId b) { return blocks[static_cast<size_t>(b)]; }
  const Block& block(BlockId b) const { return blocks[static_cast<size_t>(b)]; }
  List& DrainList(StepId step) { return draining[static_cast<size_t>(step) % kMaxStepsInFlight]; }

  int32_t BlocksFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + config.block_size - 1) / config.block_size);
  }
  int64_t Available() const { return static_cast<int64_t>(free.size()) + lru.size() - reserved; }
  bool Filed(BlockId b) const { return block(b).node >= 0; }  // in the tree

  // The cached prefix that Start would find, and its cost.
  struct Match {
    int32_t blocks = 0;
    int32_t pinned = 0;  // of them: cached, so that they leave the evictable blocks
    NodeId last = kNoNode;
  };
  // Cached: no sequence holds it and no step in flight uses it.
  bool Unused(BlockId b) const { return block(b).users == 0 && block(b).busy_until <= ended; }
  // Called up to three times for one start, so the last result is kept until something changes.
  const Match& MatchOf(SlotId s, int32_t prompt_tokens);
  Match FindMatch(const Slot& slot, int32_t shareable) const;
  // Leading blocks that the slot may share; 0: it shares none.
  int32_t ShareableOf(const Slot& slot, int32_t prompt_tokens) const;
  // Writes the match's blocks to `table` and returns how many of them are unused.
  int32_t ReadChain(const Slot& slot, const Match& match, BlockId* table);
  int64_t Cost(const Match& match, int32_t cover_tokens, int32_t reserve_tokens) const;

  void Push(List* list, BlockId b);
  void Unlink(List* list, BlockId b);
  BlockId* TakeTable(SlotId s);
  void FreeTable(SlotId s);
  BlockId TakeUnused();  // a free block, else evicts one; precondition: one is available. Its record is stale
  void Append(SlotId s, int32_t count, const StepPlan* plan);  // `count` new blocks at the end of its table
  void Use(BlockId b);
  void Unuse(BlockId b, StepId last_step);
  void Settle(BlockId b);  // moves a block without user or step to lru or to the free list
  void EnterTree(SlotId s) {
    PrefetchEnterTree(s, EndOfKeyed(s));
    EnterTree(s, EndOfKeyed(s));
  }
  void EnterTree(SlotId s, int32_t end);
  // Prefetch the memory that EnterTree reads first: the keys, and their places in the tree's table.
  static constexpr int32_t kEnterAhead = 32;
  static void PrefetchKeys(const Slot& slot);
  void PrefetchEnterTree(SlotId s, int32_t end) const;
  int32_t EndOfKeyed(SlotId s) const;  // leading blocks that are marked and have a key
  void EnterSoon(SlotId s);
  void EnterTogether() {
    if (num_entering > 0) EnterWaiting();
  }
  // Called first by every operation that changes the result of FindMatch or Cost.
  void Change() {
    last_match.slot = kNoSlot;
    EnterTogether();
  }
  void EnterWaiting();
  void MarkUnlisted(SlotId s, int32_t end);  // EnterTree of a slot with OwnKeys
  void MakeFindable(SlotId s);               // enters its unlisted blocks in the tree
  void GiveBack(SlotId s, StepId last_step);
  // Enters the block in the tree; it owns the key's node if the node is new.
  PrefixTree::Entered File(BlockId b, const Hash128& key, NodeId parent);
  void AddDuplicate(NodeId node, BlockId b);
  void DropDuplicate(BlockId b);
  void Adopt(NodeId node);       // precondition: a duplicate exists and the owner has no user; the owner becomes free
  bool HandOver(BlockId owner);  // makes the oldest duplicate the owner; false: there is none
  void LeaveTree(NodeId node);   // owner and duplicates become private; precondition: no children
  void Unlist(BlockId b);        // makes an unlisted block private
  void NoteEntered(const Hash128& key);      // for TakeEntered
  void RememberEvicted(const Hash128& key);  // for WasEvicted
  void PrefetchEvictions();                  // prefetches the blocks that are evicted next
  void PrefetchBlock(BlockId b) const { Prefetch(&block(b)); }
  static constexpr int32_t kTouchAhead = 16;  // blocks of a table that are prefetched together
  void ReportUpdate(SlotId s, int32_t first, StepPlan* plan) const;

  // void_blocks marks the blocks that will never hold the KV of their key. DropVoid adds the blocks computed from them,
  // reports the slots that hold any and clears void_blocks; DropVoidFromTree does not change it.
  void DropVoid(StepId step, std::vector<SlotId>* recompute);
  void DropVoidFromTree();

  // Frees the host blocks read by the swap-ins of earlier plans: the copies of a later plan may write them.
  void ReclaimHost(const StepPlan& plan);
  void FreeHostChain(Slot* slot);
  // Copies the saved KV back to the blocks of the table from `first` on. Precondition: only this slot uses them.
  void BringBack(SlotId s, int32_t first, StepPlan* plan);
  // `step` failed: the KV it should have saved is lost, and blocks restored from it are void.
  void VoidUnsaved(StepId step);
  void DropUnsaved(StepId step, std::vector<SlotId>* recompute);

  std::string CheckTables() const;
  std::string CheckTree() const;
  std::string CheckLists() const;
  std::string CheckHost() const;
  std::string CheckLastMatch() const;

  const KvCacheConfig config;
  const int32_t table_stride;
  HugePageVector<Block> blocks;
  HugePageVector<Slot> slots;
  HugePageArray<BlockId> tables;      // [max_slots, table_stride], not written before use
  std::vector<BlockId*> free_tables;  // a stack: few tables are ever touched, and those often
  PrefixTree tree;
  struct LastMatch {
    SlotId slot = kNoSlot;  // none
    int32_t shareable = 0;
    Hash128 key;  // of the last shareable block; identifies all blocks before it
    Match match;
  };
  LastMatch last_match;
  std::array<Entering, 32> entering;  // [num_entering], in the order in which they were marked
  size_t num_entering = 0;
  HugePageVector<BlockId> free;
  EvictionOrder<EvictedAt> lru;  // of the cached blocks
  // How far the blocks to evict, their nodes and the nodes' places in the table are prefetched, and for which step.
  EvictionOrder<EvictedAt>::Ahead asked_block, asked_node, asked_place;
  StepId asked_by = -1;
  std::array<List, kMaxStepsInFlight> draining;
  int64_t draining_blocks = 0;
  int64_t reserved = 0;
  StepId ended = -1;  // the last step whose result has arrived
  int64_t query_tokens = 0, hit_tokens = 0, evictions = 0;
  std::vector<uint8_t> void_blocks;  // scratch of failures and rollbacks, all zero otherwise
  std::vector<BlockId> host_next;    // [swap_blocks]
  std::vector<BlockId> host_free;
  std::vector<BlockId> host_read;  // read by the swap-ins of step `host_read_by`, free after it
  // Free host blocks that swap-outs leave to imports.
  size_t KeptForImports() const {
    return static_cast<size_t>(std::max<int64_t>(0, config.import_blocks - num_host_reserved));
  }
  int64_t num_host_reserved = 0;
  std::vector<uint8_t> host_reserved;  // [swap_blocks] 1: of an import in progress
  StepId host_read_by = -1;
  // Keys that entered the tree and were not returned by TakeEntered: listed_count entries from listed_begin on, cyclic.
  // Blocks that have left the tree since are still listed. A full list drops its oldest key.
  std::vector<Hash128> listed;
  size_t listed_begin = 0, listed_count = 0;
  std::vector<uint32_t> evicted_keys;  // at key.low % size: part of key.high; newer keys overwrite older ones
  int64_t swap_outs = 0, swapped_out_blocks = 0, swapped_in_blocks = 0;
};

}  // namespace tactus::core
