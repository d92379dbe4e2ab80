// PlanBuilder: the only way to put work into a step. It owns the accounting of tokens (budget), slots (B) and blocks
// (through KvLedger), refuses what does not fit, and never takes the same sequence twice. Blocks are taken at once, so
// what it has accepted fits.
//
// Thread rule: engine thread only; one per engine, reused for every step; allocates at construction only.
#pragma once

#include <span>
#include <vector>

#include "base/prefetch.h"
#include "core/sched/policy.h"

namespace tactus::core {

enum class AddResult : uint8_t {
  kAdded,
  kNotReady,  // in flight, already in this plan, given up in this plan, or nothing left to compute
  kNoBudget,  // tokens or slots are used up
  kNoBlocks,  // KV shortage
};

// Why a sequence got no share of a step.
enum class Refusal : uint8_t {
  kTokens,  // the budget's are used up
  kPlaces,  // all places are taken: of the step, or of those that may hold KV
  kBlocks,  // KV shortage
};

enum class PreemptResult : uint8_t {
  kFreed,     // its blocks are free within this plan
  kDeferred,  // a step in flight still uses it: it sits this step out, ask again once that has ended
};

class PlanBuilder {
 public:
  PlanBuilder(const SchedulerLimits& limits, KvLedger* ledger);

  struct Places {
    int32_t running = 0;  // sequences that may hold KV
    int32_t step = 0;     // of them may have a share of one step; with a pipeline of all steps in flight together
  };
  void Begin(const StepView& view, StepBudget budget, Places places, StepPlan* plan);

  // A running sequence's next positions: min(pending, limit, budget) of them; whole: all pending or kNoBudget.
  AddResult AddRunning(SlotId slot, int32_t limit, bool whole);
  // The common case of AddRunning, in line: a decode whose token, block and share are all there. False: nothing was
  // done, ask AddRunning.
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
  // The guesses at what follows that item `index` could verify with its token; 0 where it is no decode.
  int32_t DraftsOf(int32_t index) const;
  // The item takes so many of them along, or as many as tokens and blocks are left for: none that a running sequence
  // may need for its next token. Once the step is composed.
  void TakeDrafts(int32_t index, int32_t drafts);
  void SetLeastChance(double chance) { plan_->least_chance = chance; }
  // Starts a waiting sequence with its first positions beyond what is cached, cut the same way.
  AddResult Start(SlotId slot, const Admission& admission, int32_t limit, bool whole);
  // Precondition: running and not yet in this plan. kSwap saves the KV where the ledger has swap space left, else as
  // kRecompute.
  PreemptResult Preempt(SlotId slot, PreemptMode mode = PreemptMode::kRecompute);
  // As Preempt, but for a waiting sequence: does not keep others from starting in this plan.
  PreemptResult MakeRoom(SlotId slot, PreemptMode mode);
  // As MakeRoom with kSwap, but where a step in flight uses the sequence or no swap space is left it keeps its KV:
  // false.
  bool SwapOut(SlotId slot);
  // Blocks that the waiting sequence takes when it starts with all that it has to compute, and that must stay free
  // beyond them.
  struct Demand {
    int64_t blocks = 0;
    int64_t keep_free = 0;
  };
  Demand StartDemand(SlotId slot, const Admission& admission) const;
  int64_t blocks_available() const { return ledger_->blocks_available(); }
  int32_t block_size() const { return block_size_; }
  // Positions of a waiting sequence that need not be computed if it starts now. Also before a plan has begun.
  int32_t CachedTokens(const StepView& view, SlotId slot) const;
  // Positions of a running sequence that the blocks in its table cover.
  int32_t CoveredTokens(SlotId slot) const { return At(slot).covered; }
  // What giving up the running sequence can free at most, in blocks (shared ones stay).
  int64_t BlocksOf(SlotId slot) const { return ledger_->blocks_held(slot) + ledger_->blocks_reserved(slot); }

  // Positions at and beyond `computed` of a running sequence are void; they will be planned again.
  void RolledBack(SlotId slot, int32_t computed) { At(slot).next_mark = (computed / block_size_ + 1) * block_size_; }

  // Whom this plan refused a share, in order; some of them may have got it after all (Touched).
  struct Refused {
    SlotId slot = kNoSlot;
    Refusal why = Refusal::kTokens;
  };
  std::span<const Refused> refused() const { return refused_; }
  bool looked_at_waiting() const { return looked_at_waiting_; }  // one of them was asked to start

  int64_t budget_tokens() const { return budget_tokens_; }
  int64_t tokens_left() const { return tokens_left_; }
  int64_t prefill_left() const { return prefill_left_ < tokens_left_ ? prefill_left_ : tokens_left_; }
  int32_t starts_left() const { return max_running_ - running_; }
  int32_t places_left() const { return max_items_ - num_items(); }
  // Asks for the memory that questions about the sequence will read.
  void WillRead(SlotId slot) const { Prefetch(&At(slot)); }
  // The same of what Start of a waiting sequence, or giving up a running one, reads, also in the ledger: kLooks calls,
  // the first with `look` 0.
  static constexpr int32_t kLooks = KvLedger::kLooks;
  void WillStart(SlotId slot, int32_t look) const;
  void WillGiveUp(SlotId slot, int32_t look) const;
  bool Touched(SlotId slot) const {
    return At(slot).touched_by == stamp_;
  }  // has a share, or was given up, in this plan
  int32_t num_items() const { return static_cast<int32_t>(plan_->items.size()); }
  std::span<const StepItem> items() const { return plan_->items; }
  const StepPlan& step() const { return *plan_; }  // as far as it has come
  // Tokens that the step computes for nothing, for step-time models; they take no share of the budget.
  void AddPadding(int64_t tokens) { plan_->padded_tokens += tokens; }
  bool empty() const { return num_items() == 0; }
  bool has_preempted() const { return preempted_; }
  const StepView& view() const { return *view_; }

 private:
  // What `count` becomes for a sequence that must take `all` of its tokens or none; 0: none.
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
  int32_t max_items_ = 0;  // of this step: with a pipeline a micro-batch, so that one step cannot take them all
  bool preempted_ = false, looked_at_waiting_ = false;
  std::vector<Refused> refused_;
  // Decodes whose next token takes a block or fills one, for which much is read that has not been for long: the next
  // plan asks for it first. More at once are in step with each other, and lie near.
  static constexpr size_t kMostGrowing = 64;
  std::vector<SlotId> growing_;
  int64_t stamp_ = 0;
  struct Planned {            // of a slot; side by side, for a decode reads all of them
    int64_t touched_by = -1;  // stamp of the plan that touched it
    int32_t covered = 0;      // positions that its blocks cover
    int32_t next_mark = 0;    // length at which another block can enter the prefix tree
  };
  Planned& At(SlotId slot) { return planned_[static_cast<size_t>(slot)]; }
  const Planned& At(SlotId slot) const { return planned_[static_cast<size_t>(slot)]; }
  std::vector<Planned> planned_;  // [capacity]
};

}  // namespace tactus::core
