// Never preempts; the admission must reserve all that can be needed.
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class NoPreemption final : public Preemption {
 public:
  void Describe(ChoiceTraits*) const override {}
  SlotId Victim(const StepView&, const PlanBuilder&, const Order&, SlotId) const override { return kNoSlot; }
};

}  // namespace

std::unique_ptr<Preemption> MakeNoPreemption(const SchedulerLimits&) {
  return std::make_unique<NoPreemption>();
}

}  // namespace tactus::core
