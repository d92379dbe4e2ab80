// The scheduler's view of the KV cache, used by PlanBuilder. core/kv implements it; core/sched has no other access, so
// that a policy can be unfair but never overcommit. All counts are in blocks of block_size() tokens unless they say
// tokens.
//
// Thread rule: engine thread only. Sharing rules (ARCHITECTURE.md): only full blocks are shared and they never change;
// of a prompt of p tokens at most floor((p - 1) / b) blocks match, so the last prompt token is always computed.
#pragma once

#include <vector>

#include "base/hash.h"
#include "base/step.h"
#include "base/units.h"

namespace tactus::core {

struct KvStart {
  bool ok = false;             // false: a shortage; nothing changed
  int32_t matched_tokens = 0;  // KV found in the prefix tree (or forked): computing starts at this position
};

class KvLedger {
 public:
  virtual ~KvLedger() = default;

  virtual int32_t block_size() const = 0;
  virtual int64_t blocks_total() const = 0;
  // Free + evictable - reserved but not yet drawn. Never negative.
  virtual int64_t blocks_available() const = 0;
  virtual int64_t blocks_held(SlotId slot) const = 0;          // in the slot's table, shared ones included
  virtual int64_t blocks_reserved(SlotId) const { return 0; }  // set aside for the slot, not drawn yet

  // Tokens that Start would find cached for this slot now; 0 when prefix caching is off. Read-only, no pin.
  virtual int32_t PeekMatch(SlotId slot, int32_t prompt_tokens) const = 0;

  // Blocks that Start(slot, prompt_tokens, cover_tokens, reserve_tokens) would take from blocks_available() now.
  virtual int64_t StartCost(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens) const = 0;

  // Prefetch the memory that Start, Release, or Extend and MarkPending by one block will read. Each address is read
  // from the memory before it, so a prefetch takes kLooks calls, with `look` 0 to kLooks - 1 and other work between
  // them.
  static constexpr int32_t kLooks = 4;
  virtual void PrefetchStart(SlotId, int32_t /*prompt_tokens*/, int32_t /*look*/) const {}
  virtual void PrefetchRelease(SlotId, int32_t /*look*/) const {}
  virtual void PrefetchGrow(SlotId, int32_t /*look*/) const {}

  // Matches and pins the slot's prefix, then allocates blocks for positions [0, max(cover_tokens, matched)), and sets
  // aside what `reserve_tokens` (>= cover_tokens) needs beyond that. `fork_from`: share that slot's full blocks of the
  // first prompt_tokens - 1 positions and copy the partial one (the copy is appended to `plan`), as for n > 1.
  virtual KvStart Start(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens,
                        SlotId fork_from, StepPlan* plan) = 0;

  // Grows the slot's table to cover positions [0, tokens), from its reservation first. False: a shortage; nothing
  // changed. Table changes are appended to `plan`.
  virtual bool Extend(SlotId slot, int32_t tokens, StepPlan* plan) = 0;

  // The plan computes positions [0, computed_tokens) of the slot by the end of `step`: full blocks whose key is known
  // enter the tree as pending(step), so that a later item of the same plan can match them.
  virtual void MarkPending(SlotId slot, int32_t computed_tokens, StepId step) = 0;

  // Frees all blocks and reservations of the slot. Blocks that a step in flight still uses become available when
  // `last_step` has ended (-1: no step in flight uses the slot).
  virtual void Release(SlotId slot, StepId last_step) = 0;

  // Swap to host memory. Like Release, but the KV of positions [0, computed_tokens) is copied to the host (appended to
  // plan->swap_outs) and kept for the slot until DropSwapped or Start. Start returns the saved length as matched_tokens
  // and appends the copies back to plan->swap_ins. Precondition: no step in flight uses the slot. False: not enough
  // host blocks (or no swap space at all); nothing changed.
  virtual bool SwapOut(SlotId, int32_t /*computed_tokens*/, StepPlan*) { return false; }
  virtual int32_t SwappedTokens(SlotId) const { return 0; }  // 0: nothing is swapped out
  virtual void DropSwapped(SlotId) {}
  virtual int64_t swap_blocks_total() const { return 0; }
  virtual int64_t swap_blocks_free() const { return 0; }
};

}  // namespace tactus::core
