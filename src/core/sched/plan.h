// PlanBuilder is the only way to put work into a step. It does the accounting of tokens (budget), slots (B) and blocks
// (through KvLedger), refuses what does not fit, and never adds the same sequence twice. Blocks are allocated at once,
// so accepted items always fit.
//
// Thread rule: engine thread only; one per engine, reused for every step; allocates at construction only.
#pragma once

#include <span>
#include <vector>

#include "base/growing_vector.h"
#include "base/prefetch.h"
#include "core/sched/policy.h"

namespace tactus::core {

enum class AddResult : uint8_t {
  kAdded,
  kNotReady,  // in flight, already in this plan, preempted in this plan, or nothing left to compute
  kNoBudget,  // no tokens or slots left
  kNoBlocks,  // KV shortage
};

// Why a sequence got no share of a step.
enum class Refusal : uint8_t {
  kTokens,  // no tokens left in the budget
  kPlaces,  // no place left, in the step or among sequences that may hold KV
  kBlocks,  // KV shortage
};

enum class PreemptResult : uint8_t {
  kFreed,     // its blocks are free in this plan
  kDeferred,  // a step in flight still uses it: it sits this step out; call again once that step has ended
};

class PlanBuilder {
 public:
  PlanBuilder(const SchedulerLimits& limits, KvLedger* ledger);

  struct Places {
    int32_t running = 0;  // sequences that may hold KV
    int32_t step = 0;     // of them, those that may be in one step; in a pipeline: in all steps in flight together
  };
  void Begin(const StepView& view, StepBudget budget, Places places, StepPlan* plan);

  // Adds a running sequence's next positions: min(pending, limit, budget) of them; whole: all pending or kNoBudget.
  AddResult AddRunning(SlotId slot, int32_t limit, bool whole);
  // The common case of AddRunning, inlined: a decode with its token, block and budget available. False: nothing was
  // done, call AddRunning.
  bool AddDecode(SlotId slot) {
    const SequenceColumns& seq = view_->seq;
    const int32_t known = seq.known_planned[slot];
    Planned& planned = At(slot);
    if (seq.state[slot] != SeqState::kDecode || seq.flight[slot] != FlightState::kIdle || Touched(slot) ||
        tokens_left_ <= 0 || known - seq.computed_planned[slot] != 1 || known > planned.covered ||
        known >= planned.next_mark || known - seq.prompt_tokens[slot] >= seq.max_output_tokens[slot] ||
        num_items() >= max_items_) {
      return false;
    }
    StepItem& item = plan_->items.emplace_back();
    item.slot = slot;
    item.first_position = known - 1;
    item.count = item.logit_rows = 1;
    item.sample = true;
    if ((known == planned.covered || known + 1 == planned.next_mark) && growing_.size() < kMostGrowing)
      growing_.push_back(slot);
    planned.touched_by = stamp_;
    --tokens_left_;
    ++plan_->num_tokens;
    ++plan_->num_decodes;
    ++plan_->logit_rows;
    plan_->decode_context_tokens += known;
    return true;
  }
  // The drafts that item `index` could verify with its token; 0 if it is no decode.
  int32_t DraftsOf(int32_t index) const;
  // Adds `drafts` of them to the item, fewer if tokens or blocks are short; leaves the blocks that running sequences
  // may need for their next tokens. Called once the step is composed.
  void TakeDrafts(int32_t index, int32_t drafts);
  void SetLeastChance(double chance) { plan_->least_chance = chance; }
  // Starts a waiting sequence with its first uncached positions, cut as in AddRunning.
  AddResult Start(SlotId slot, const Admission& admission, int32_t limit, bool whole);
  // Precondition: running and not yet in this plan. kSwap saves the KV while the ledger has swap space left, else acts
  // as kRecompute.
  PreemptResult Preempt(SlotId slot, PreemptMode mode = PreemptMode::kRecompute);
  // As Preempt, but in favour of a waiting sequence: others may still start in this plan.
  PreemptResult MakeRoom(SlotId slot, PreemptMode mode);
  // As MakeRoom with kSwap; false, and the sequence keeps its KV, if a step in flight uses it or no swap space is left.
  bool SwapOut(SlotId slot);
  // Blocks that a waiting sequence takes when it starts with all that it has to compute, and blocks that must stay free
  // beyond them.
  struct Demand {
    int64_t blocks = 0;
    int64_t keep_free = 0;
  };
  Demand StartDemand(SlotId slot, const Admission& admission) const;
  int64_t blocks_available() const { return ledger_->blocks_available(); }
  int32_t block_size() const { return block_size_; }
  // Positions of a waiting sequence that are cached if it starts now. Also before a plan has begun.
  int32_t CachedTokens(const StepView& view, SlotId slot) const;
  // Positions of a running sequence that the blocks in its table cover.
  int32_t CoveredTokens(SlotId slot) const { return At(slot).covered; }
  // Upper bound of the blocks that preempting the running sequence frees (shared ones stay).
  int64_t BlocksOf(SlotId slot) const { return ledger_->blocks_held(slot) + ledger_->blocks_reserved(slot); }

  // Positions of a running sequence from `computed` on are void; they will be planned again.
  void RolledBack(SlotId slot, int32_t computed) { At(slot).next_mark = (computed / block_size_ + 1) * block_size_; }

  // Sequences that this plan refused a share, in order; some may have got one later (Touched).
  struct Refused {
    SlotId slot = kNoSlot;
    Refusal why = Refusal::kTokens;
  };
  std::span<const Refused> refused() const { return refused_; }
  bool looked_at_waiting() const { return looked_at_waiting_; }  // whether Start was called

  int64_t budget_tokens() const { return budget_tokens_; }
  int64_t tokens_left() const { return tokens_left_; }
  int64_t prefill_left() const { return prefill_left_ < tokens_left_ ? prefill_left_ : tokens_left_; }
  int32_t starts_left() const { return max_running_ - running_; }
  int32_t places_left() const { return max_items_ - num_items(); }
  // Prefetches the builder's row of the sequence.
  void PrefetchSlot(SlotId slot) const { Prefetch(planned_.data() + slot); }
  // Prefetch what Start of a waiting sequence, or preempting a running one, reads, also in the ledger: kLooks calls,
  // the first with `look` 0.
  static constexpr int32_t kLooks = KvLedger::kLooks;
  void PrefetchStart(SlotId slot, int32_t look) const;
  void PrefetchPreempt(SlotId slot, int32_t look) const;
  bool Touched(SlotId slot) const {
    return At(slot).touched_by == stamp_;
  }  // has a share of this plan, or was preempted in it
  int32_t num_items() const { return static_cast<int32_t>(plan_->items.size()); }
  std::span<const StepItem> items() const { return plan_->items; }
  const StepPlan& step() const { return *plan_; }  // as built so far
  // Tokens computed only as padding, for step-time models; they do not count against the budget.
  void AddPadding(int64_t tokens) { plan_->padded_tokens += tokens; }
  bool empty() const { return num_items() == 0; }
  bool has_preempted() const { return preempted_; }
  const StepView& view() const { return *view_; }

 private:
  // `count` if it covers `all` tokens of a sequence that must not be split, or if they fit as oversize; else 0.
  int32_t WholeOrNone(int64_t count, int32_t all) const;
  AddResult Refuse(SlotId slot, Refusal why);
  void AddItem(SlotId slot, int32_t first, int32_t count, bool decode);

  KvLedger* const ledger_;
  const int32_t block_size_;
  const int32_t pipeline_steps_;
  const StepView* view_ = nullptr;
  StepPlan* plan_ = nullptr;
  int64_t budget_tokens_ = 0, tokens_left_ = 0, prefill_left_ = 0, oversize_tokens_ = 0;
  int32_t max_running_ = 0, running_ = 0;
  int32_t max_items_ = 0;  // of this step: in a pipeline its part, so that one step cannot take all places
  bool preempted_ = false, looked_at_waiting_ = false;
  std::vector<Refused> refused_;
  // Decodes whose next token needs a new block or fills one: that reads much cold memory, so the next plan prefetches
  // it first. More than this many at once grow in lockstep, and their data lies close together.
  static constexpr size_t kMostGrowing = 64;
  std::vector<SlotId> growing_;
  int64_t stamp_ = 0;
  struct Planned {            // per slot; one struct, since a decode reads all of it
    int64_t touched_by = -1;  // stamp of the last plan that touched it
    int32_t covered = 0;      // positions that its blocks cover
    int32_t next_mark = 0;    // length at which its next block can enter the prefix tree
  };
  void MakeRows(const StepView& view) {
    if (view.seq.slots > 0) MakeUpTo(&planned_, static_cast<size_t>(view.seq.slots) - 1);
  }
  Planned& At(SlotId slot) { return planned_[static_cast<size_t>(slot)]; }
  const Planned& At(SlotId slot) const { return planned_[static_cast<size_t>(slot)]; }
  std::vector<Planned> planned_;  // [SequenceColumns::slots], with room for all
};

}  // namespace tactus::core
