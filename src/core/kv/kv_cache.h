// The KV cache's bookkeeping: block pool, block tables, prefix tree. It works on slots, block ids and block keys, never
// on requests or memory (the executor owns the bytes). One object per engine.
//
// Block identity: key(i) = SipHash128(key(i - 1), tokens of block i), rooted at (model, adapter, cache_salt); see
// core/kv/block_key.h. The caller keeps each live sequence's keys in a vector that grows as blocks fill up. A sequence
// whose keys no other sequence can have needs none before it has lost its KV: see OwnKeys.
//
// Thread rule: engine thread only. No call allocates memory in the steady state: pools are sized at construction, and
// their memory becomes resident as it is used.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/interfaces/kv_ledger.h"
#include "core/kv/own_keys.h"
#include "tactus/prefix_outline.h"

namespace tactus::core {

struct KvCacheConfig {
  int64_t num_blocks = 0;   // >= 1
  int32_t block_size = 16;  // tokens per block, >= 1
  int32_t max_slots = 0;    // live sequences, waiting ones included
  int32_t max_blocks_per_slot = 0;
  bool prefix_caching = true;
  int64_t swap_blocks = 0;        // host blocks (separate block ids) for swapped-out sequences
  int64_t import_blocks = 0;      // of them: reserved for imports from other replicas (ReserveHost)
  bool list_entered = false;      // record the blocks that enter the prefix tree (TakeEntered)
  bool remember_evicted = false;  // record evicted keys (WasEvicted)
  // One of many caches in a process: small pages, and a table of the tree that grows with use. Entering a block may
  // then allocate, and a large cache is slower.
  bool lean = false;
};

struct KvCacheStats {
  int64_t blocks_total = 0;
  int64_t blocks_free = 0;      // hold nothing
  int64_t blocks_cached = 0;    // hold a prefix that no live sequence uses: evictable
  int64_t blocks_in_use = 0;    // in some live sequence's table
  int64_t blocks_draining = 0;  // released, but a step in flight still uses them
  int64_t blocks_reserved = 0;  // set aside, not drawn yet
  // Counters over the first start of each sequence: a preempted sequence mostly finds its own KV again, which is no
  // sharing.
  int64_t prefix_query_tokens = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t evictions = 0;  // blocks
  int64_t swap_blocks_total = 0;
  int64_t swap_blocks_used = 0;  // hold the KV of swapped-out sequences
  int64_t swap_outs = 0;         // counters: sequences, and the blocks copied in each direction
  int64_t swapped_out_blocks = 0;
  int64_t swapped_in_blocks = 0;
};

class KvCache final : public KvLedger {
 public:
  explicit KvCache(const KvCacheConfig& config);
  ~KvCache() override;

  // A waiting sequence enters the slot. `keys`: keys of its full blocks known so far (prompt); the caller owns the
  // vector and may append while the sequence lives. Null: its blocks are never shared. With `own` the vector is not
  // read before own->MakeKeys, and the slot cannot be forked.
  void Bind(SlotId slot, const std::vector<Hash128>* keys, OwnKeys* own = nullptr);
  // The sequence leaves the slot. Precondition: released.
  void Unbind(SlotId slot);
  // Release and Unbind of a sequence that has ended and will not start again.
  void End(SlotId slot, StepId last_step);

  // KvLedger
  int32_t block_size() const override;
  int64_t blocks_total() const override;
  int64_t blocks_available() const override;
  int64_t blocks_held(SlotId slot) const override;
  int64_t blocks_reserved(SlotId slot) const override;
  int32_t PeekMatch(SlotId slot, int32_t prompt_tokens) const override;
  int64_t StartCost(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens) const override;
  void PrefetchStart(SlotId slot, int32_t prompt_tokens, int32_t look) const override;
  void PrefetchRelease(SlotId slot, int32_t look) const override;
  void PrefetchGrow(SlotId slot, int32_t look) const override;
  // `plan` has the step that the blocks are for. The copied positions of a fork's source were computed by steps that
  // have ended.
  KvStart Start(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens, SlotId fork_from,
                StepPlan* plan) override;
  bool Extend(SlotId slot, int32_t tokens, StepPlan* plan) override;
  void MarkPending(SlotId slot, int32_t computed_tokens, StepId step) override;
  void Release(SlotId slot, StepId last_step) override;

  // Swap (host_blocks.h; docs/concepts/swap.md). A plan's step runs its copies. SwapOut also saves shared blocks;
  // leading full blocks that are still cached when the sequence starts again are shared instead of copied back. While a
  // sequence is swapped out, PeekMatch, StartCost and Start refer to the saved KV, and its slot cannot be started as a
  // fork.
  bool SwapOut(SlotId slot, int32_t computed_tokens, StepPlan* plan) override;
  int32_t SwappedTokens(SlotId slot) const override;
  void DropSwapped(SlotId slot) override;
  int64_t swap_blocks_total() const override;
  int64_t swap_blocks_free() const override;

  // Imports (docs/concepts/migration.md): reserves host blocks that the caller fills with the KV of a sequence from
  // another replica, which then enters as if swapped out here. The caller must not write them until the steps in flight
  // and the next planned one have ended. False: fewer than `count` are free; nothing changed.
  bool ReserveHost(int32_t count, std::vector<BlockId>* blocks);
  void ReturnHost(std::span<const BlockId> blocks);
  // Makes the reserved blocks the slot's saved KV, of positions [0, tokens). Precondition: the slot is bound and holds
  // nothing, and the number of blocks is that of `tokens` tokens.
  void KeepImported(SlotId slot, std::span<const BlockId> blocks, int32_t tokens);
  // Leading blocks of the table that are full and computed by steps that have ended: they never change again.
  int32_t FinishedBlocks(SlotId slot, int32_t computed_tokens) const;
  // Blocks of the table that the last Start copied back from host memory.
  int32_t BroughtBack(SlotId slot) const;

  // Leading blocks of the chain `keys` that are in the prefix tree.
  int32_t Cached(std::span<const Hash128> keys) const;
  // Whether the key is among the last evicted ones. Precondition: it is not in the tree.
  bool WasEvicted(const Hash128& key) const;
  // Returns the next block that entered the tree, oldest first, once the step that computes it has ended: it never
  // changes while it is in the tree. Blocks that have left the tree are skipped; a block that left and entered again
  // may be returned twice. False: none now.
  struct Entered {
    BlockId block = kNoBlock;
    Hash128 key;
  };
  bool TakeEntered(Entered* entered);

  // A step has ended. ok: its pending blocks become ready and draining blocks become free. Not ok: the blocks it should
  // have filled leave the tree, and so do blocks that steps in flight compute from them. Every live slot whose table
  // has such a block (the producer and its dependants) is appended to `*recompute`, in ascending order; the caller must
  // release and restart it. The slots whose KV the step should have swapped out follow: their saved KV is dropped, and
  // they hold nothing.
  void StepEnded(StepId step, bool ok, std::vector<SlotId>* recompute);

  // One item of a step failed (the step itself succeeded): the blocks it should have filled from `first_position` on
  // leave the tree; the slot and its dependants are reported as above. Call before StepEnded(step) or right after it.
  void ItemFailed(SlotId slot, int32_t first_position, StepId step, std::vector<SlotId>* recompute);

  // As ItemFailed, but the item's sequence has released its blocks since (cancelled in flight), so that they are not
  // known any more: all blocks that the step should have filled leave the tree.
  void OnStepFailed(StepId step, std::vector<SlotId>* recompute);

  // Positions from `tokens` on are void (a rejected draft, a discarded late token). Their blocks stay allocated.
  void Rollback(SlotId slot, int32_t tokens);

  int64_t blocks_in_use() const;  // as in Stats, but O(1)
  std::span<const BlockId> Table(SlotId slot) const;
  KvCacheStats Stats() const;
  PrefixOutline Outline(size_t most) const;  // the `most` largest branches of the prefix tree

  // Checks every invariant, slowly: reference counts against tables, the tree's links, the order of eviction, free +
  // cached + in use + draining == total, reservations, no partial or shared-and-writable block in the tree. Empty: all
  // hold; else the first violation.
  std::string CheckIntegrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::core
