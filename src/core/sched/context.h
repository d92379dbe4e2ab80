// What a composition works with: the view, the builder, and operations that combine the other choices.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/sched/plan.h"
#include "core/sched/policy.h"
#include "core/sched/running_by_rank.h"
#include "core/sched/steady_ranking.h"

namespace tactus::core {

inline constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

// Scratch space kept from step to step, and the last order of the running sequences.
struct StepScratch {
  StepScratch() : StepScratch(0, 0) {}
  StepScratch(int32_t slot_capacity, int32_t most_running) : ranking(slot_capacity, most_running) {
    in_order.reserve(static_cast<size_t>(most_running));
  }
  SteadyRanking ranking;
  std::vector<SlotId> in_order;
};

class StepContext {
 public:
  StepContext(const StepView& step_view, PlanBuilder* builder, Order* order_choice, const Admission* admission,
              const Preemption* preemption, const RunningByRank* running_in_order, StepScratch* scratch);

  const StepView& view;
  PlanBuilder& plan;
  Order& order;
  const RunningByRank* const running_by_rank;  // null unless ChoiceTraits::pauses

  bool IsDecode(SlotId slot) const { return view.seq.state[slot] == SeqState::kDecode; }

  // Adds a running sequence's next tokens, and preempts victims while memory is short.
  AddResult Run(SlotId slot, int32_t limit = kNoLimit, bool whole = false);
  // Starts a waiting sequence with its first tokens. Never preempts.
  AddResult Admit(SlotId slot, int32_t limit = kNoLimit, bool whole = false) {
    return plan.Start(slot, admission_, limit, whole);
  }
  // Blocks that a waiting sequence takes when it starts with its first `end` positions, if none of them is cached; and
  // blocks that must stay free beyond them.
  PlanBuilder::Demand StartDemand(SlotId slot, int32_t end) const {
    const KvDemand demand = admission_.Demand(view, slot, end);
    const int64_t tokens = std::max(demand.reserve_tokens, end);
    return {(tokens + plan.block_size() - 1) / plan.block_size(), view.running.empty() ? 0 : demand.keep_free_blocks};
  }
  PlanBuilder::Demand StartDemand(SlotId slot) const { return plan.StartDemand(slot, admission_); }
  // The sequence that would lose its KV for `needy`, which may be waiting; and its preemption.
  SlotId Victim(SlotId needy);
  PreemptResult TakeBack(SlotId victim) { return plan.Preempt(victim, preemption_.Mode()); }
  // Before the step is composed: preempts running sequences that give way to waiting ones which could not start
  // otherwise. The composition then starts sequences as usual.
  void MakeRoom();
  // As above for one sequence that is short of KV, during composition: preempts from the last before `tail` in
  // running_by_rank on, and moves `tail` back over them. False: the newcomer cannot start in this step.
  bool MakeRoomFor(SlotId newcomer, RunningByRank::Cursor* tail);
  // After composition: if fewer blocks are free than the step has sequences, each of which may need one more for its
  // next token, swaps out sequences without a share of the step, the last before `tail` first.
  void FreeAhead(RunningByRank::Cursor tail);
  // Running sequences by arrival or by admission; by rank first if the order ranks.
  std::span<const SlotId> RunningByArrival() { return Ranked(view.running_by_arrival, view.seq.arrival_order); }
  std::span<const SlotId> RunningByAdmission() { return Ranked(view.running, view.seq.admit_order); }
  // Preempts every sequence that has outgrown its reservation. Returns their number.
  int32_t AbortOutgrown();
  // Adds all decodes, oldest first.
  void RunDecodes();
  // Adds all partly done prompts, oldest first.
  void RunPrefills(bool whole);
  // Starts waiting sequences in queue order until one does not fit. Starts none in a step that had to preempt.
  void AdmitInOrder(bool whole);

 private:
  bool MakeRoomFor(SlotId newcomer, int64_t blocks, int32_t places);
  // Prefetches the next few before `tail` in running_by_rank, which may be preempted soon.
  void PrefetchPreemptBefore(RunningByRank::Cursor tail) const;
  std::span<const SlotId> Ranked(std::span<const SlotId> slots, SequenceColumn<int64_t> tie);

  const Admission& admission_;
  const Preemption& preemption_;
  StepScratch& scratch_;
  RunningByRank::Cursor victims_;  // in running_by_rank, after the last sequence that this plan has not touched
  std::optional<SequenceColumn<int64_t>> ranked_by_;  // tie-break of scratch_.in_order in this step
};

}  // namespace tactus::core
