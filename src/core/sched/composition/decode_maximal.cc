// Sarathi (2023): exactly one prompt chunk, with the ongoing decodes beside it. The chunk is what the step's decodes
// leave of C (the budget), so that the step's tokens are C, a multiple of the tile. Without prompts: decodes only.
// Without decodes: a chunk of C.
#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class DecodeMaximal final : public Composition {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = traits->one_prompt = true; }
  void Compose(StepContext& step) override {
    step.RunDecodes();
    // A started prompt continues; there are several only after a failed or rolled-back step.
    if (step.view.num_prefilling > 0) {
      for (const SlotId slot : step.RunningByArrival()) {
        if (step.IsDecode(slot)) continue;
        const AddResult result = step.Run(slot);
        if (result != AddResult::kNotReady) return;
      }
    }
    if (step.plan.has_preempted() || step.plan.prefill_left() <= 0) return;
    step.order.Start(step.view);
    if (const SlotId slot = step.order.Next(); slot != kNoSlot) step.Admit(slot);
  }
};

}  // namespace

std::unique_ptr<Composition> MakeDecodeMaximal(const SchedulerLimits&) {
  return std::make_unique<DecodeMaximal>();
}

}  // namespace tactus::core
