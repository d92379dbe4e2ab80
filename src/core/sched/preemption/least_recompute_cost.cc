// Among the sequences of lowest rank, the one with the least to compute again loses its KV; of equal ones the last to
// arrive. Positions that the prefix cache may still hold are counted as lost.
#include "core/sched/choices.h"
#include "core/sched/plan.h"

namespace tactus::core {
namespace {

class LeastRecomputeCost final : public Preemption {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = true; }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId) const override {
    SlotId victim = kNoSlot;
    for (auto it = view.running_by_arrival.rbegin(); it != view.running_by_arrival.rend(); ++it) {
      if (plan.Touched(*it)) continue;
      if (victim == kNoSlot || order.Outranks(view, victim, *it) ||
          (!order.Outranks(view, *it, victim) && view.seq.computed_planned[*it] < view.seq.computed_planned[victim])) {
        victim = *it;
      }
    }
    return victim;
  }
};

}  // namespace

std::unique_ptr<Preemption> MakeLeastRecomputeCost(const SchedulerLimits&) {
  return std::make_unique<LeastRecomputeCost>();
}

}  // namespace tactus::core
