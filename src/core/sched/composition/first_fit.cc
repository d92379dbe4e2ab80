// S3's packing, second half: stall-free steps, but a waiting sequence that does not fit is passed over by later ones of
// its group that do. The order's groups bound how far this looks and which sequences are passed over.
#include "core/sched/choices.h"
#include "core/sched/class_shares.h"
#include "core/sched/context.h"
#include "core/sched/newcomers.h"

namespace tactus::core {
namespace {

class FirstFit final : public Composition {
 public:
  explicit FirstFit(const SchedulerLimits& limits) : shares_(limits) {}
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }
  void Compose(StepContext& step) override {
    step.RunDecodes();
    step.RunPrefills(false);
    if (step.plan.has_preempted() || step.view.waiting.empty()) return;
    Newcomers waiting(step.view, &step.order, step.plan);
    const SlotId first = waiting.Next();
    for (SlotId slot = first; slot != kNoSlot; slot = waiting.Next()) {
      if (step.plan.starts_left() <= 0 || step.plan.prefill_left() <= 0) return;
      const int64_t group = step.order.Group(step.view, slot);
      if (group != step.order.Group(step.view, first)) return;
      // In a queue without groups no sequence is passed over, nor is one that goes first for its class's share.
      const bool waits_for = group == 0 || shares_.GoesFirst(step.view, slot);
      if (step.Admit(slot) != AddResult::kAdded && waits_for) return;
    }
  }

 private:
  const ClassShares shares_;
};

}  // namespace

std::unique_ptr<Composition> MakeFirstFit(const SchedulerLimits& limits) {
  return std::make_unique<FirstFit>(limits);
}

}  // namespace tactus::core
