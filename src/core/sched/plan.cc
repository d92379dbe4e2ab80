#include "core/sched/plan.h"

#include <algorithm>

#include "base/check.h"

namespace tactus::core {

PlanBuilder::PlanBuilder(const SchedulerLimits& limits, KvLedger* ledger)
    : ledger_(ledger), block_size_(ledger->block_size()), pipeline_steps_(limits.pipeline_steps) {
  planned_.reserve(static_cast<size_t>(limits.slot_capacity));
  growing_.reserve(kMostGrowing);
}

void PlanBuilder::Begin(const StepView& view, StepBudget budget, Places places, StepPlan* plan) {
  view_ = &view;
  MakeRows(view);
  plan_ = plan;
  plan->budget_tokens = budget_tokens_ = tokens_left_ = budget.tokens;
  prefill_left_ = budget.prefill_tokens;
  oversize_tokens_ = budget.oversize_tokens;
  max_running_ = places.running;
  max_items_ = (places.step + pipeline_steps_ - 1) / pipeline_steps_;
  running_ = static_cast<int32_t>(view.running.size());
  preempted_ = looked_at_waiting_ = false;
  refused_.clear();
  ++stamp_;
  constexpr int32_t kFew = 64;  // fewer sequences: their data is still in the cache
  for (int32_t look = 0; look < kLooks && running_ >= kFew; ++look) {
    for (const SlotId slot : growing_) ledger_->PrefetchGrow(slot, look);
  }
  growing_.clear();
}

AddResult PlanBuilder::Refuse(SlotId slot, Refusal why) {
  // After each sequence that gave way the same one tries again; list it once.
  if (refused_.empty() || refused_.back().slot != slot) refused_.push_back({slot, why});
  refused_.back().why = why;
  return why == Refusal::kBlocks ? AddResult::kNoBlocks : AddResult::kNoBudget;
}

void PlanBuilder::PrefetchStart(SlotId slot, int32_t look) const {
  const SequenceColumns& seq = view_->seq;
  if (look == 0) {
    PrefetchSlot(slot);
    seq.PrefetchRow(slot);
    Prefetch(view_->notes.bytes + static_cast<size_t>(slot) * view_->notes.stride);
  }
  ledger_->PrefetchStart(slot, look > 1 ? seq.known_committed[slot] : 0, look);
}

void PlanBuilder::PrefetchPreempt(SlotId slot, int32_t look) const {
  if (look == 0) {
    PrefetchSlot(slot);
    Prefetch(view_->notes.bytes + static_cast<size_t>(slot) * view_->notes.stride);
    view_->seq.PrefetchRow(slot);
  }
  ledger_->PrefetchRelease(slot, look);
}

int32_t PlanBuilder::WholeOrNone(int64_t count, int32_t all) const {
  if (count >= all) return all;
  return all <= oversize_tokens_ && plan_->prompt_items.empty() ? all : 0;
}

AddResult PlanBuilder::AddRunning(SlotId slot, int32_t limit, bool whole) {
  const SequenceColumns& seq = view_->seq;
  if (Touched(slot) || !seq.Plannable(slot)) return AddResult::kNotReady;
  const int32_t pending = seq.Pending(slot);
  if (pending <= 0) return AddResult::kNotReady;
  if (num_items() >= max_items_) return Refuse(slot, Refusal::kPlaces);
  const bool decode = seq.state[slot] == SeqState::kDecode;
  const int64_t left = decode ? tokens_left_ : prefill_left();
  auto count = static_cast<int32_t>(std::min<int64_t>({pending, limit, left}));
  if (whole && count > 0) count = WholeOrNone(count, pending);
  if (count <= 0) return Refuse(slot, Refusal::kTokens);
  const int32_t end = seq.computed_planned[slot] + count;
  if (end > At(slot).covered) {
    if (!ledger_->Extend(slot, end, plan_)) return Refuse(slot, Refusal::kBlocks);
    At(slot).covered = static_cast<int32_t>(ledger_->blocks_held(slot)) * block_size_;
    TACTUS_CHECK(At(slot).covered >= end);
  }
  AddItem(slot, seq.computed_planned[slot], count, decode);
  return AddResult::kAdded;
}

int32_t PlanBuilder::DraftsOf(int32_t index) const {
  const StepItem& item = plan_->items[static_cast<size_t>(index)];
  const SequenceColumns& seq = view_->seq;
  if (!item.sample || seq.state[item.slot] != SeqState::kDecode || seq.draft_tokens[item.slot] == 0) return 0;
  const int32_t output_left =
      seq.max_output_tokens[item.slot] - (seq.known_planned[item.slot] - seq.prompt_tokens[item.slot]);
  return std::clamp(output_left - 1, 0, int32_t{seq.draft_tokens[item.slot]});
}

void PlanBuilder::TakeDrafts(int32_t index, int32_t drafts) {
  StepItem& item = plan_->items[static_cast<size_t>(index)];
  TACTUS_CHECK(item.draft_tokens == 0 && item.input == InputSource::kHost && drafts <= DraftsOf(index));
  const int32_t end = item.first_position + item.count;
  // Its own blocks, and those free beyond one block per running sequence.
  const int64_t blocks = BlocksOf(item.slot) + std::max<int64_t>(0, ledger_->blocks_available() - running_);
  drafts = static_cast<int32_t>(std::min<int64_t>({drafts, tokens_left_, blocks * block_size_ - end}));
  if (drafts <= 0) return;
  Planned& planned = At(item.slot);
  if (end + drafts > planned.covered) {
    if (ledger_->Extend(item.slot, end + drafts, plan_)) {
      planned.covered = static_cast<int32_t>(ledger_->blocks_held(item.slot)) * block_size_;
    } else {
      drafts = planned.covered - end;
    }
  }
  item.draft_tokens = drafts;
  item.count += drafts;
  item.logit_rows += drafts;
  tokens_left_ -= drafts;
  plan_->draft_tokens += drafts;
  plan_->logit_rows += drafts;
  plan_->num_tokens += drafts;
  plan_->decode_context_tokens += drafts;
}

int32_t PlanBuilder::CachedTokens(const StepView& view, SlotId slot) const {
  const SlotId fork = view.seq.fork_from[slot];
  if (fork != kNoSlot && ledger_->blocks_held(fork) > 0) return view.seq.prompt_tokens[slot] - 1;
  return ledger_->PeekMatch(slot, view.seq.known_committed[slot]);
}

AddResult PlanBuilder::Start(SlotId slot, const Admission& admission, int32_t limit, bool whole) {
  const SequenceColumns& seq = view_->seq;
  TACTUS_CHECK(seq.state[slot] == SeqState::kWaiting);
  if (Touched(slot) || seq.flight[slot] != FlightState::kIdle) return AddResult::kNotReady;
  looked_at_waiting_ = true;
  if (starts_left() <= 0 || num_items() >= max_items_) return Refuse(slot, Refusal::kPlaces);
  if (prefill_left() <= 0) return Refuse(slot, Refusal::kTokens);
  const int32_t goal = seq.known_committed[slot];
  SlotId fork = seq.fork_from[slot];
  if (fork != kNoSlot && ledger_->blocks_held(fork) == 0) fork = kNoSlot;  // preempted earlier in this plan
  const int32_t matched = CachedTokens(*view_, slot);
  const int32_t remaining = goal - matched;
  auto count = static_cast<int32_t>(std::min<int64_t>({remaining, limit, prefill_left()}));
  if (whole && count > 0) count = WholeOrNone(count, remaining);
  if (count <= 0) return Refuse(slot, Refusal::kTokens);
  const int32_t end = matched + count;
  const KvDemand demand = admission.Demand(*view_, slot, end);
  const int32_t reserve = std::max(demand.reserve_tokens, end);
  if (demand.keep_free_blocks > 0 && running_ > 0) {
    const int64_t cost = fork != kNoSlot ? (reserve + block_size_ - 1) / block_size_ - matched / block_size_
                                         : ledger_->StartCost(slot, goal, end, reserve);
    if (ledger_->blocks_available() - cost < demand.keep_free_blocks) return Refuse(slot, Refusal::kBlocks);
  }
  const KvStart start = ledger_->Start(slot, goal, end, reserve, fork, plan_);
  if (!start.ok) return Refuse(slot, Refusal::kBlocks);
  TACTUS_CHECK_MSG(start.matched_tokens == matched, "the ledger matched " + std::to_string(start.matched_tokens) +
                                                        " tokens after it had promised " + std::to_string(matched));
  At(slot).covered = static_cast<int32_t>(ledger_->blocks_held(slot)) * block_size_;
  TACTUS_CHECK(At(slot).covered >= end);
  At(slot).next_mark = (matched / block_size_ + 1) * block_size_;
  plan_->starts.emplace_back().slot = slot;
  if (seq.preemptions[slot] > 0) {
    plan_->longest_preemption_ns = std::max(plan_->longest_preemption_ns, view_->now_ns - seq.queued_ns[slot]);
  }
  ++running_;
  AddItem(slot, matched, count, false);
  return AddResult::kAdded;
}

PreemptResult PlanBuilder::Preempt(SlotId slot, PreemptMode mode) {
  const PreemptResult result = MakeRoom(slot, mode);
  preempted_ |= result == PreemptResult::kFreed;
  return result;
}

PreemptResult PlanBuilder::MakeRoom(SlotId slot, PreemptMode mode) {
  TACTUS_CHECK(!Touched(slot));
  At(slot).touched_by = stamp_;
  if (view_->seq.flight[slot] != FlightState::kIdle) return PreemptResult::kDeferred;
  if (mode != PreemptMode::kSwap || !ledger_->SwapOut(slot, view_->seq.computed_committed[slot], plan_))
    ledger_->Release(slot, -1);
  plan_->preempts.push_back(slot);
  --running_;
  return PreemptResult::kFreed;
}

bool PlanBuilder::SwapOut(SlotId slot) {
  TACTUS_CHECK(!Touched(slot));
  if (view_->seq.flight[slot] != FlightState::kIdle ||
      !ledger_->SwapOut(slot, view_->seq.computed_committed[slot], plan_)) {
    return false;
  }
  At(slot).touched_by = stamp_;
  plan_->preempts.push_back(slot);
  --running_;
  return true;
}

PlanBuilder::Demand PlanBuilder::StartDemand(SlotId slot, const Admission& admission) const {
  const int32_t goal = view_->seq.known_committed[slot];
  const KvDemand demand = admission.Demand(*view_, slot, goal);
  return {ledger_->StartCost(slot, goal, goal, std::max(demand.reserve_tokens, goal)),
          running_ > 0 ? demand.keep_free_blocks : 0};
}

void PlanBuilder::AddItem(SlotId slot, int32_t first, int32_t count, bool decode) {
  const SequenceColumns& seq = view_->seq;
  const int32_t end = first + count;
  const int32_t known = seq.known_planned[slot];
  StepItem& item = plan_->items.emplace_back();
  item.slot = slot;
  item.first_position = first;
  item.count = count;
  item.sample = end == known;
  item.logit_rows = item.sample ? 1 : 0;
  if (seq.prompt_logprobs[slot] && first < seq.prompt_tokens[slot]) item.logit_rows = count;
  // The input is on the device only if it is the one token that a step in flight samples.
  const bool chained = end > seq.known_committed[slot];
  item.input = chained ? InputSource::kChained : InputSource::kHost;
  TACTUS_CHECK(!chained || count == 1);
  At(slot).touched_by = stamp_;
  TACTUS_DCHECK(count >= 1 && (count <= tokens_left_ || count <= oversize_tokens_));
  tokens_left_ -= count;
  plan_->logit_rows += item.logit_rows;
  if (decode) {
    plan_->num_decodes += count == 1 ? 1 : 0;
    plan_->decode_context_tokens += end;
  } else {
    prefill_left_ -= count;
    plan_->prompt_items.push_back(num_items() - 1);
  }
  plan_->num_tokens += count;
  if (end >= At(slot).next_mark) {
    ledger_->MarkPending(slot, end, view_->step);
    // A block key is known once the block's last token is: tokens still on the device arrive `lag` steps from now.
    const int32_t lag = known - seq.known_committed[slot];
    const int32_t boundary = (end / block_size_ + 1) * block_size_;
    At(slot).next_mark = end % block_size_ == 0 && lag > 0 ? std::min(end + lag, boundary) : boundary;
  }
}

}  // namespace tactus::core
