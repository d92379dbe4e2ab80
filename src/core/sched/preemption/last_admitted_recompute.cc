// The last admitted sequence among those of lowest rank loses its KV and is recomputed (vLLM V1).
#include "core/sched/choices.h"
#include "core/sched/preemption/last_of_least_valued.h"

namespace tactus::core {
namespace {

class LastAdmittedRecompute final : public Preemption {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = true; }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId) const override {
    return LastOfLeastValued(view.running, view, plan, order);
  }
};

}  // namespace

std::unique_ptr<Preemption> MakeLastAdmittedRecompute(const SchedulerLimits&) {
  return std::make_unique<LastAdmittedRecompute>();
}

}  // namespace tactus::core
