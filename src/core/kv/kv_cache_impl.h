// Inside of KvCache, shared by kv_cache.cc (operations), kv_prefix.cc (the tree), kv_swap.cc (host memory),
// kv_failure.cc (failed steps) and kv_integrity.cc.
//
// A block is in exactly one place:
//   free      holds nothing                                      (free list)
//   cached    owner of a tree node or unlisted, no user, no step (lru)
//   in use    in the table of at least one live sequence         (users > 0)
//   draining  no user, but a step in flight still touches it     (list of that step)
// A node in use has its parent in use, and a node that drains has a parent that is in use or drains at least as long;
// so cached nodes form the bottom of the tree, and because a sequence gives back its last block first, they are evicted
// children before parents: the oldest is always a leaf.
//
// A node of the tree has one owner, and possibly duplicates: blocks of live sequences that computed the same tokens at
// the same time and stay private. When the owner's last user goes, a duplicate takes the node over, so that a node in
// use always has its parent in use.
//
// What a plan marks as computed soon enters the tree together with others (EnterTogether): alone, each block would wait
// for memory, as the tree's table is read where it was not read for long. Every operation that could tell the
// difference has them enter first.
//
// A block of a sequence with keys of its own is unlisted instead of in the tree: cached when it has no user, but never
// found. When the sequence gives its blocks back and may start again, they enter the tree first (MakeFindable).
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
  // A line of the cache: whoever touches one block touches no other's.
  struct alignas(64) Block {
    int32_t users = 0;         // tables that hold it
    NodeId node = kNoNode;     // node of the same key: owned, or duplicated; or kUnlisted
    BlockId after = kNoBlock;  // its predecessor where it was filled; means something only while pending
    StepId begun_by = -1;      // the first step that may write it
    StepId computed_by = -1;   // the step that fills it completely; pending until that has ended
    StepId busy_until = -1;    // last step in flight that touches it on behalf of a sequence that has let go of it
    BlockId prev = kNoBlock;   // neighbours in the draining or duplicates list
    BlockId next = kNoBlock;
    uint32_t evicted_at = kNotEvictable;  // place in the order of eviction, while cached
    BlockId first_duplicate = kNoBlock;   // of an owner: list through the blocks, oldest first
    BlockId last_duplicate = kNoBlock;
    bool owns = false;  // its node's owner; said here as well, so that a release reads no node
  };
  // Where EvictionOrder notes the places.
  struct EvictedAt {
    Block* blocks;
    uint32_t& operator()(BlockId b) const { return blocks[static_cast<size_t>(b)].evicted_at; }
  };
  struct List {
    BlockId head = kNoBlock;
    BlockId tail = kNoBlock;
    int64_t size = 0;
  };
  struct alignas(64) Slot {  // what a step reads lies in its first line of the cache
    bool bound = false;
    bool looked_up = false;  // its first start has been counted in query_tokens
    const std::vector<Hash128>* keys = nullptr;
    OwnKeys* own = nullptr;         // not null: its blocks are unlisted
    BlockId* table = nullptr;       // from its start until it gives its blocks back
    int32_t blocks = 0;             // entries of the table
    int32_t reserved = 0;           // set aside for it, not drawn
    int32_t marked = 0;             // leading blocks that are full or will be by the end of a step in flight
    int32_t keyed = 0;              // leading blocks that are in the tree or duplicate a node
    int32_t swapped_tokens = 0;     // positions saved in host memory; it holds no block then
    BlockId first_host = kNoBlock;  // chain through host_next, in order of position
    int32_t restored_begin = 0;     // blocks of its table that were copied back
    int32_t restored_end = 0;
    StepId saved_by = -1;  // the step that copies its KV out; kept after it has come back
  };
  struct Entering {
    SlotId slot = kNoSlot;
    int32_t end = 0;  // of its blocks
  };
  // Steps in flight at once, at most; far beyond any pipeline.
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

  // What a start would find and pay.
  struct Match {
    int32_t blocks = 0;
    int32_t pinned = 0;  // of them cached: no longer evictable once the sequence holds them
    NodeId last = kNoNode;
  };
  // Cached: no sequence holds it and no step in flight uses it.
  bool Unused(BlockId b) const { return block(b).users == 0 && block(b).busy_until <= ended; }
  // The same question is asked up to three times for one start, so its last answer is kept until something changes.
  const Match& MatchOf(SlotId s, int32_t prompt_tokens);
  Match FindMatch(const Slot& slot, int32_t shareable) const;
  // Leading blocks that the slot may share: 0 unless it looks for any.
  int32_t ShareableOf(const Slot& slot, int32_t prompt_tokens) const;
  // The blocks of what was found, and how many of them have no user.
  int32_t ReadChain(const Slot& slot, const Match& match, BlockId* table);
  int64_t Cost(const Match& match, int32_t cover_tokens, int32_t reserve_tokens) const;

  void Push(List* list, BlockId b);
  void Unlink(List* list, BlockId b);
  BlockId* TakeTable(SlotId s);
  void FreeTable(SlotId s);
  BlockId TakeUnused();  // free, else the next to be evicted; precondition: there is one. Its record is stale
  void Append(SlotId s, int32_t count, const StepPlan* plan);  // `count` new blocks at the end of its table
  void Use(BlockId b);
  void Unuse(BlockId b, StepId last_step);
  void Settle(BlockId b);  // no user, no step: to lru or to the free list
  void EnterTree(SlotId s) {
    WillEnter(s, EndOfKeyed(s));
    EnterTree(s, EndOfKeyed(s));
  }
  void EnterTree(SlotId s, int32_t end);
  // Asks for the memory that EnterTree reads first: the keys, and where they lie in the tree's table.
  static constexpr int32_t kEnterAhead = 32;
  static void WillReadKeys(const Slot& slot);
  void WillEnter(SlotId s, int32_t end) const;
  int32_t EndOfKeyed(SlotId s) const;  // leading blocks that are marked and have a key
  void EnterSoon(SlotId s);
  void EnterTogether() {
    if (num_entering > 0) EnterWaiting();
  }
  // Begins every operation that changes anything of what may be found and what it costs.
  void Change() {
    last_match.slot = kNoSlot;
    EnterTogether();
  }
  void EnterWaiting();
  void MarkUnlisted(SlotId s, int32_t end);  // EnterTree of a slot with keys of its own
  void MakeFindable(SlotId s);               // from now on its blocks can be found
  void GiveBack(SlotId s, StepId last_step);
  // The block owns the key's node, if that is new.
  PrefixTree::Entered File(BlockId b, const Hash128& key, NodeId parent);
  void AddDuplicate(NodeId node, BlockId b);
  void DropDuplicate(BlockId b);
  void Adopt(NodeId node);               // precondition: a duplicate exists and no slot has the owner, which comes free
  bool HandOver(BlockId owner);          // its oldest duplicate becomes the owner; false: there is none
  void LeaveTree(NodeId node);           // owner and duplicates become private; precondition: no children
  void Unlist(BlockId b);                // becomes private; precondition: unlisted
  void NoteEntered(const Hash128& key);  // for TakeEntered
  void RememberEvicted(const Hash128& key);  // for WasEvicted
  void WillEvict();                          // asks for the memory of the blocks that are evicted soon
  void WillTouch(BlockId b) const { Prefetch(&block(b)); }
  static constexpr int32_t kTouchAhead = 16;  // blocks of a table whose memory is asked for together
  void ReportUpdate(SlotId s, int32_t first, StepPlan* plan) const;

  // void_blocks says which blocks will never hold what their key says. DropVoid adds what was
  // computed from them, reports who holds any and clears void_blocks; DropVoidFromTree leaves it as it is.
  void DropVoid(StepId step, std::vector<SlotId>* recompute);
  void DropVoidFromTree();

  // Host blocks that a plan reads may be written by the copies of a later one.
  void ReclaimHost(const StepPlan& plan);
  void FreeHostChain(Slot* slot);
  // Blocks of the table from `first` on get what was saved; precondition: they are the slot's alone.
  void BringBack(SlotId s, int32_t first, StepPlan* plan);
  // `step` failed: what it was to save is lost, and what has come back of it already is void.
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
  HugePageArray<BlockId> tables;      // [max_slots, table_stride], not touched before use
  std::vector<BlockId*> free_tables;  // the last used goes out first: few are ever touched, and those often
  PrefixTree tree;
  struct LastMatch {
    SlotId slot = kNoSlot;  // none
    int32_t shareable = 0;
    Hash128 key;  // of the last shareable block, which names all before it
    Match match;
  };
  LastMatch last_match;
  std::array<Entering, 32> entering;  // the first num_entering, in the order in which they were marked
  size_t num_entering = 0;
  HugePageVector<BlockId> free;
  EvictionOrder<EvictedAt> lru;  // of the cached blocks
  // What was asked for of those that are evicted soon: blocks, their nodes, the nodes' places in the table; and for
  // the blocks of which step.
  EvictionOrder<EvictedAt>::Ahead asked_block, asked_node, asked_place;
  StepId asked_by = -1;
  std::array<List, kMaxStepsInFlight> draining;
  int64_t draining_blocks = 0;
  int64_t reserved = 0;
  StepId ended = -1;  // results are there up to this step
  int64_t query_tokens = 0, hit_tokens = 0, evictions = 0;
  std::vector<uint8_t> void_blocks;  // scratch of failures and rollbacks, all zero otherwise
  std::vector<BlockId> host_next;    // [swap_blocks]
  std::vector<BlockId> host_free;
  std::vector<BlockId> host_read;  // read by the swap-ins of step `host_read_by`, free after it
  // So many of those that are free are not swapped out to.
  size_t KeptForImports() const {
    return static_cast<size_t>(std::max<int64_t>(0, config.import_blocks - num_host_reserved));
  }
  int64_t num_host_reserved = 0;
  std::vector<uint8_t> host_reserved;  // [swap_blocks] 1: of an import that is on its way
  StepId host_read_by = -1;
  // Keys that entered the tree and were not taken: listed_count from listed_begin on, around the end; a block that has
  // left the tree since is still listed. When it is full the oldest is dropped.
  std::vector<Hash128> listed;
  size_t listed_begin = 0, listed_count = 0;
  std::vector<uint32_t> evicted_keys;  // parts of keys, by another part; a newer one takes the place of an older one
  int64_t swap_outs = 0, swapped_out_blocks = 0, swapped_in_blocks = 0;
};

}  // namespace tactus::core
