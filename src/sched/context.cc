#include "sched/context.h"

namespace tactus::sched {

AddResult StepContext::Run(SlotId slot, int32_t limit, bool whole) {
  for (;;) {
    const AddResult result = plan.AddRunning(slot, limit, whole);
    if (result != AddResult::kNoBlocks) return result;
    const SlotId victim = preemption_.Victim(view, plan, order, slot);
    if (victim == kNoSlot) return result;
    if (plan.Preempt(victim) == PreemptResult::kDeferred || victim == slot) return result;
  }
}

void StepContext::RunDecodes() {
  for (const SlotId slot : view.running_by_arrival) {
    if (IsDecode(slot)) Run(slot);
  }
}

void StepContext::RunPrefills(bool whole) {
  if (view.num_prefilling == 0) return;
  for (const SlotId slot : view.running_by_arrival) {
    if (plan.prefill_left() <= 0) return;
    if (!IsDecode(slot)) Run(slot, kNoLimit, whole);
  }
}

void StepContext::AdmitInOrder(bool whole) {
  if (plan.has_preempted() || view.waiting.empty() || plan.starts_left() <= 0 || plan.prefill_left() <= 0) return;
  order.Start(view);
  for (SlotId slot = order.Next(); slot != kNoSlot; slot = order.Next()) {
    if (Admit(slot, kNoLimit, whole) != AddResult::kAdded) return;
  }
}

}  // namespace tactus::sched
