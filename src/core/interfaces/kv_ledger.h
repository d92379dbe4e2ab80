// What the scheduler's PlanBuilder may ask of the KV cache. core/kv implements it; core/sched sees only this, so that a
// policy can be unfair but never overcommit. All counts are in blocks of block_size() tokens unless they say tokens.
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
  // Free + evictable - set aside for reservations not yet drawn. Never negative.
  virtual int64_t blocks_available() const = 0;
  virtual int64_t blocks_held(SlotId slot) const = 0;          // in the slot's table, shared ones included
  virtual int64_t blocks_reserved(SlotId) const { return 0; }  // set aside for the slot, not drawn yet

  // Tokens that Start would find cached for this slot now; 0 when prefix caching is off. Read-only, no pin.
  virtual int32_t PeekMatch(SlotId slot, int32_t prompt_tokens) const = 0;

  // Blocks that Start(slot, prompt_tokens, cover_tokens, reserve_tokens) would take from blocks_available() now.
  virtual int64_t StartCost(SlotId slot, int32_t prompt_tokens, int32_t cover_tokens, int32_t reserve_tokens) const = 0;

  // Asks for the memory that Start, or Release, of the slot will read, or Extend and MarkPending by a block. One thing
  // says where the next lies, so it takes kLooks calls, the first with `look` 0, with other work between them.
  static constexpr int32_t kLooks = 4;
  virtual void WillStart(SlotId, int32_t /*prompt_tokens*/, int32_t /*look*/) const {}
  virtual void WillRelease(SlotId, int32_t /*look*/) const {}
  virtual void WillGrow(SlotId, int32_t /*look*/) const {}

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

  // Gives back everything the slot holds. Blocks that a step in flight still writes or reads are reusable once
  // `last_step` has ended (pass -1 when no step in flight uses the slot); they count as available from then on.
  virtual void Release(SlotId slot, StepId last_step) = 0;

  // Swap to host memory. Like Release, but the KV of positions [0, computed_tokens) is copied to the host (appended to
  // plan->swap_outs) and stays the slot's until Start brings it back (matched_tokens = what was saved; the copies are
  // appended to plan->swap_ins) or DropSwapped. Precondition: no step in flight uses the slot. False: not enough host
  // blocks (or no swap space at all); nothing changed.
  virtual bool SwapOut(SlotId, int32_t /*computed_tokens*/, StepPlan*) { return false; }
  virtual int32_t SwappedTokens(SlotId) const { return 0; }  // 0: nothing is swapped out
  virtual void DropSwapped(SlotId) {}
  virtual int64_t swap_blocks_total() const { return 0; }
  virtual int64_t swap_blocks_free() const { return 0; }
};

}  // namespace tactus::core
