// What a composition works with: the view, the builder, and the other choices' answers turned into moves.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "sched/plan.h"
#include "sched/policy.h"

namespace tactus::sched {

inline constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

class StepContext {
 public:
  // `scratch` holds [max running] slots for the life of the context.
  StepContext(const StepView& step_view, PlanBuilder* builder, Order* order_choice, const Admission* admission,
              const Preemption* preemption, std::vector<SlotId>* scratch);

  const StepView& view;
  PlanBuilder& plan;
  Order& order;

  bool IsDecode(SlotId slot) const { return view.seq.state[slot] == SeqState::kDecode; }

  // A running sequence's next tokens, taking memory from victims while it is short.
  AddResult Run(SlotId slot, int32_t limit = kNoLimit, bool whole = false);
  // A waiting sequence's first tokens. Never preempts.
  AddResult Admit(SlotId slot, int32_t limit = kNoLimit, bool whole = false) {
    return plan.Start(slot, admission_, limit, whole);
  }
  // Running sequences, oldest first or in order of admission; under an order with ranks the more important before.
  std::span<const SlotId> RunningByArrival() { return Ranked(view.running_by_arrival, view.seq.arrival_order); }
  std::span<const SlotId> RunningByAdmission() { return Ranked(view.running, view.seq.admit_order); }
  // Preempts whoever has outgrown what was set aside for it. The number of them.
  int32_t AbortOutgrown();
  // All decodes, oldest first.
  void RunDecodes();
  // All partly done prompts, oldest first.
  void RunPrefills(bool whole);
  // Waiting sequences in queue order until one does not fit. Nothing starts in a step that had to preempt.
  void AdmitInOrder(bool whole);

 private:
  std::span<const SlotId> Ranked(std::span<const SlotId> slots, const int64_t* tie);

  const Admission& admission_;
  const Preemption& preemption_;
  std::vector<SlotId>& scratch_;
};

}  // namespace tactus::sched
