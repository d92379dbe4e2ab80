// Each end of a scanned plan retracts its own sequences (BlendServe, 3.4: a scheduler within each partition of the KV
// memory): a sequence short of KV takes it from the last to arrive of its end. If its end has none left, it takes it
// from the last to arrive of all.
#include "core/sched/choices.h"
#include "core/sched/preemption/last_of_least_valued.h"

namespace tactus::core {
namespace {

class OwnEnd final : public Preemption {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = true; }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId needy) const override {
    const PlanEnd end = view.seq.planned[needy].end;
    for (auto it = view.running_by_arrival.rbegin(); it != view.running_by_arrival.rend(); ++it) {
      if (view.seq.planned[*it].end == end && !plan.Touched(*it)) return *it;
    }
    return LastOfLeastValued(view.running_by_arrival, view, plan, order);
  }
};

}  // namespace

std::unique_ptr<Preemption> MakeOwnEndRecompute(const SchedulerLimits&) {
  return std::make_unique<OwnEnd>();
}

}  // namespace tactus::core
