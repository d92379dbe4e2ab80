// The KV cache's bookkeeping: block pool, block tables, prefix tree. It knows slots, block ids and block keys; never a
// Request, never memory (the executor owns the bytes). One object per engine.
//
// Block identity: key(i) = SipHash128(key(i - 1), tokens of block i), rooted at (model, adapter, cache_salt); see
// core/kv/block_key.h. The caller keeps each live sequence's keys in a vector that grows as blocks fill up. A sequence
// whose keys no other can ask for needs none of them before it has lost its KV itself: see OwnKeys.
//
// Thread rule: engine thread only. No call allocates memory in the steady state: pools are sized at construction.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/interfaces/kv_ledger.h"

namespace tactus::core {

struct KvCacheConfig {
  int64_t num_blocks = 0;   // >= 1
  int32_t block_size = 16;  // tokens per block, >= 1
  int32_t max_slots = 0;    // live sequences, waiting ones included
  int32_t max_blocks_per_slot = 0;
  bool prefix_caching = true;
  int64_t swap_blocks = 0;        // of host memory (block ids of their own), for sequences that are swapped out
  int64_t import_blocks = 0;      // of them those that are kept for what comes from elsewhere (ReserveHost)
  bool list_entered = false;      // TakeEntered knows what enters the prefix tree
  bool remember_evicted = false;  // WasEvicted knows what left it for want of room
};

struct KvCacheStats {
  int64_t blocks_total = 0;
  int64_t blocks_free = 0;      // hold nothing
  int64_t blocks_cached = 0;    // hold a prefix that no live sequence uses: evictable
  int64_t blocks_in_use = 0;    // in some live sequence's table
  int64_t blocks_draining = 0;  // released, but a step in flight still uses them
  int64_t blocks_reserved = 0;  // set aside, not drawn yet
  // Counters since the start, of the first start of each sequence: what one that was preempted finds again is mostly
  // its own KV, which nothing shares.
  int64_t prefix_query_tokens = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t evictions = 0;  // blocks
  int64_t swap_blocks_total = 0;
  int64_t swap_blocks_used = 0;  // hold the KV of sequences that are swapped out
  int64_t swap_outs = 0;         // counters since the start: sequences, and the blocks copied either way
  int64_t swapped_out_blocks = 0;
  int64_t swapped_in_blocks = 0;
};

// Keys that no sequence but the one can ever ask for, as of a simulated request that shares no text. Its blocks are
// cached, evicted and counted like all others, but until it may look for them nothing is hashed or filed.
class OwnKeys {
 public:
  virtual ~OwnKeys() = default;
  // Full blocks of the sequence whose key could be made by now.
  virtual int32_t KeysKnown(SlotId slot) const = 0;
  // Makes them all, in the vector given to Bind, which from now on grows as that of any other sequence.
  virtual void MakeKeys(SlotId slot) = 0;
};

class KvCache final : public KvLedger {
 public:
  explicit KvCache(const KvCacheConfig& config);
  ~KvCache() override;

  // A sequence enters (waiting): `keys` holds the keys of its full blocks known so far (prompt), stays owned by the
  // caller, and may grow by push_back while the sequence lives. Null: nothing of it is ever shared. With `own` the
  // vector is not read before own->MakeKeys, and nothing can be forked from the slot.
  void Bind(SlotId slot, const std::vector<Hash128>* keys, OwnKeys* own = nullptr);
  // The sequence is gone; precondition: released.
  void Unbind(SlotId slot);
  // Release and Unbind of a sequence that has ended, and will not look for its blocks again.
  void End(SlotId slot, StepId last_step);

  // KvLedger
  int32_t block_size() const override;
  int64_t blocks_total() const override;
  int64_t blocks_available() const override;
  int64_t blocks_held(SlotId slot) const override;
  int64_t blocks_reserved(SlotId slot) const override;
  int32_t PeekMatch(SlotId slot, int32_t prompt_tokens) const override;
  int64_t StartCost(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens) const override;
  void WillStart(SlotId slot, int32_t prompt_tokens, int32_t look) const override;
  void WillRelease(SlotId slot, int32_t look) const override;
  void WillGrow(SlotId slot, int32_t look) const override;
  // A plan names the step that the blocks are for. The source of a fork has the copied positions from steps that have
  // ended.
  KvStart Start(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens, SlotId fork_from,
                StepPlan* plan) override;
  bool Extend(SlotId slot, int32_t tokens, StepPlan* plan) override;
  void MarkPending(SlotId slot, int32_t computed_tokens, StepId step) override;
  void Release(SlotId slot, StepId last_step) override;

  // Swap (kv_swap.cc; docs/swap.md). The copies of a plan are done by its step. What is saved includes shared blocks;
  // what of the leading full ones is still cached when the sequence starts again is shared again instead of copied
  // back. With a sequence swapped out, PeekMatch, StartCost and Start speak of what was saved, and nothing can be
  // forked into its slot.
  bool SwapOut(SlotId slot, int32_t computed_tokens, StepPlan* plan) override;
  int32_t SwappedTokens(SlotId slot) const override;
  void DropSwapped(SlotId slot) override;
  int64_t swap_blocks_total() const override;
  int64_t swap_blocks_free() const override;

  // Imports (docs/migration.md): host blocks that the caller fills, for a sequence that comes as if it had been
  // swapped out here. Steps in flight, and copies that wait for the next one, may still use them: until those have
  // ended they must not be written. False: not so many are free; nothing changed.
  bool ReserveHost(int32_t count, std::vector<BlockId>* blocks);
  void ReturnHost(std::span<const BlockId> blocks);
  // They become what is kept of the slot: its first `tokens` positions. Precondition: bound, holds nothing; as many
  // reserved blocks as so many tokens fill.
  void KeepImported(SlotId slot, std::span<const BlockId> blocks, int32_t tokens);
  // Leading blocks of the table that are full and computed by steps that have ended: they never change any more.
  int32_t FinishedBlocks(SlotId slot, int32_t computed_tokens) const;
  // Blocks of the table that came from host memory when the slot started last.
  int32_t BroughtBack(SlotId slot) const;

  // Leading blocks of a chain that the prefix tree has.
  int32_t Cached(std::span<const Hash128> keys) const;
  // Whether the key's block was evicted, of the last ones that were. Precondition: it is not in the tree.
  bool WasEvicted(const Hash128& key) const;
  // A block that is in the tree and computed by a step that has ended, so that it never changes while it is there: each
  // that entered is given, the oldest first; those that are gone already are left out, and one that went and came again
  // may be given twice. False: none is at the moment.
  struct Entered {
    BlockId block = kNoBlock;
    Hash128 key;
  };
  bool TakeEntered(Entered* entered);

  // A step has ended. ok: its pending blocks become ready and draining blocks come free. Not ok: blocks it was to fill
  // leave the tree, and so does whatever steps in flight compute from them; every live slot whose table holds such a
  // block (the producer and its dependants) is appended to `*recompute`, in ascending order, and must be released and
  // started again by the caller. After them come the slots whose KV the step was to save: it is dropped, and they hold
  // nothing.
  void StepEnded(StepId step, bool ok, std::vector<SlotId>* recompute);

  // One item of a step could not run (the step itself was fine): what it was to fill from `first_position` on leaves
  // the tree, dependants are reported as above, the slot itself among them. Before StepEnded(step) or right after it.
  void ItemFailed(SlotId slot, int32_t first_position, StepId step, std::vector<SlotId>* recompute);

  // The same where the item's sequence has let go of its blocks meanwhile (cancelled while in flight), so that which
  // ones they were is not known any more: all that the step was to fill leaves the tree.
  void StepFillsNothing(StepId step, std::vector<SlotId>* recompute);

  // Positions at and beyond `tokens` are void (a rejected draft, a discarded late token): blocks beyond stay allocated.
  void Rollback(SlotId slot, int32_t tokens);

  int64_t blocks_in_use() const;  // as in Stats, at once
  std::span<const BlockId> Table(SlotId slot) const;
  KvCacheStats Stats() const;

  // Every invariant, slowly: reference counts against tables, the tree's links, the order of eviction, free + cached +
  // in use + draining == total, reservations, no partial or shared-and-writable block in the tree. Empty: all hold;
  // else what is broken.
  std::string CheckIntegrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::core
