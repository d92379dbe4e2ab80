// The sequence that arrived last loses its KV and is recomputed, among those that the order values least.
#include "sched/choices.h"
#include "sched/plan.h"

namespace tactus::sched {
namespace {

class YoungestRecompute final : public Preemption {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = true; }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId) const override {
    SlotId victim = kNoSlot;
    for (auto it = view.running_by_arrival.rbegin(); it != view.running_by_arrival.rend(); ++it) {
      if (plan.Touched(*it)) continue;
      if (victim == kNoSlot || order.Outranks(view, victim, *it)) victim = *it;
    }
    return victim;
  }
};

}  // namespace

std::unique_ptr<Preemption> MakeYoungestRecompute(const SchedulerLimits&) {
  return std::make_unique<YoungestRecompute>();
}

}  // namespace tactus::sched
