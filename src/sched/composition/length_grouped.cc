// PiA: request-level batches (a batch starts when the last one has finished) of sequences that the order puts into one
// group, which it expects to end at about the same time. Under an order without groups this is request-level batching.
#include "sched/choices.h"
#include "sched/context.h"

namespace tactus::sched {
namespace {

class LengthGrouped final : public Composition {
 public:
  void Describe(ChoiceTraits*) const override {}
  void Compose(StepContext& step) override {
    if (!step.view.running.empty()) {
      step.RunPrefills(true);  // only what a failed or rolled-back step left half done
      step.RunDecodes();
      return;
    }
    step.order.Start(step.view);
    const SlotId first = step.order.Next();
    for (SlotId slot = first; slot != kNoSlot; slot = step.order.Next()) {
      if (step.order.Group(step.view, slot) != step.order.Group(step.view, first)) return;
      if (step.Admit(slot, kNoLimit, true) != AddResult::kAdded) return;
    }
  }
};

}  // namespace

std::unique_ptr<Composition> MakeLengthGrouped(const SchedulerLimits&) {
  return std::make_unique<LengthGrouped>();
}

}  // namespace tactus::sched
