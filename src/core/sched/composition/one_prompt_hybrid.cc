// Orca at its best, as in Sarathi (2023, 5.2): the whole prompt of one request joins the ongoing decodes. By Orca's own
// rule prompts that start together share a step, which leaves fewer steps for decodes to join.
#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class OnePromptHybrid final : public Composition {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->one_prompt = true; }
  void Compose(StepContext& step) override {
    step.RunDecodes();
    // A started prompt continues; there is one only after a failed or rolled-back step.
    if (step.view.num_prefilling > 0) {
      for (const SlotId slot : step.RunningByArrival()) {
        if (!step.IsDecode(slot) && step.Run(slot, kNoLimit, true) != AddResult::kNotReady) return;
      }
    }
    if (step.plan.has_preempted() || step.plan.prefill_left() <= 0) return;
    step.order.Start(step.view);
    if (const SlotId slot = step.order.Next(); slot != kNoSlot) step.Admit(slot, kNoLimit, true);
  }
};

}  // namespace

std::unique_ptr<Composition> MakeOnePromptHybrid(const SchedulerLimits&) {
  return std::make_unique<OnePromptHybrid>();
}

}  // namespace tactus::core
