// What a composition works with: the view, the builder, and the other choices' answers turned into moves.
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

// Kept from step to step: space, and the order that running sequences had.
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

  // A running sequence's next tokens, taking memory from victims while it is short.
  AddResult Run(SlotId slot, int32_t limit = kNoLimit, bool whole = false);
  // A waiting sequence's first tokens. Never preempts.
  AddResult Admit(SlotId slot, int32_t limit = kNoLimit, bool whole = false) {
    return plan.Start(slot, admission_, limit, whole);
  }
  // Blocks that a waiting sequence takes, none of its prompt being cached, when it starts with its first `end`
  // positions; and those that must stay free beyond them.
  PlanBuilder::Demand StartDemand(SlotId slot, int32_t end) const {
    const KvDemand demand = admission_.Demand(view, slot, end);
    const int64_t tokens = std::max(demand.reserve_tokens, end);
    return {(tokens + plan.block_size() - 1) / plan.block_size(), view.running.empty() ? 0 : demand.keep_free_blocks};
  }
  PlanBuilder::Demand StartDemand(SlotId slot) const { return plan.StartDemand(slot, admission_); }
  // Who would give its KV back for `needy`, which may be waiting; and its giving back.
  SlotId Victim(SlotId needy);
  PreemptResult TakeBack(SlotId victim) { return plan.Preempt(victim, preemption_.Mode()); }
  // Before anything is composed: a sequence that gives way to a waiting sequence that could not start otherwise does
  // so. Sequences start after that as the composition says.
  void MakeRoom();
  // The same for one sequence that is short of KV, while a step is composed, from the last before `tail` in
  // running_by_rank on; `tail` goes back over those that have given way. False: it cannot start in this step.
  bool MakeRoomFor(SlotId newcomer, RunningByRank::Cursor* tail);
  // After a step is composed: where it leaves fewer blocks free than it has sequences, each of which may need one more
  // for its next token, sequences without a share in it are swapped out, the last before `tail` first.
  void FreeAhead(RunningByRank::Cursor tail);
  // Running sequences, oldest first or in order of admission; under an order with ranks the more important before.
  std::span<const SlotId> RunningByArrival() { return Ranked(view.running_by_arrival, view.seq.arrival_order); }
  std::span<const SlotId> RunningByAdmission() { return Ranked(view.running, view.seq.admit_order); }
  // Preempts every sequence that has outgrown what was set aside for it. The number of them.
  int32_t AbortOutgrown();
  // All decodes, oldest first.
  void RunDecodes();
  // All partly done prompts, oldest first.
  void RunPrefills(bool whole);
  // Waiting sequences in queue order until one does not fit. Nothing starts in a step that had to preempt.
  void AdmitInOrder(bool whole);

 private:
  bool MakeRoomFor(SlotId newcomer, int64_t blocks, int32_t places);
  // Asks for the memory of the next few before `tail` in running_by_rank, which may be given up soon.
  void WillGiveUpBefore(RunningByRank::Cursor tail) const;
  std::span<const SlotId> Ranked(std::span<const SlotId> slots, SequenceColumn<int64_t> tie);

  const Admission& admission_;
  const Preemption& preemption_;
  StepScratch& scratch_;
  RunningByRank::Cursor victims_;  // in running_by_rank, behind the last that this plan has not touched
  std::optional<SequenceColumn<int64_t>> ranked_by_;  // tie of what scratch_.in_order holds for this step
};

}  // namespace tactus::core
