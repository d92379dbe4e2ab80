// S3's supervisor: a sequence that needs more than was set aside for it is taken out of the batch, predicted again for
// longer and queued again. What it has generated is kept and computed again with its prompt. Within the reservations
// no sequence meets a shortage; should one arise all the same, the last to arrive gives way.
#include "sched/choices.h"
#include "sched/plan.h"

namespace tactus::sched {
namespace {

class AbortAndRequeue final : public Preemption {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = traits->aborts_outgrown = true; }
  bool Outgrown(const StepView& view, SlotId slot) const override {
    return view.seq.Pending(slot) > 0 && view.seq.computed_planned[slot] >= view.notes[slot].reserved_tokens;
  }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order&, SlotId) const override {
    for (auto it = view.running_by_arrival.rbegin(); it != view.running_by_arrival.rend(); ++it) {
      if (!plan.Touched(*it)) return *it;
    }
    return kNoSlot;
  }
};

}  // namespace

std::unique_ptr<Preemption> MakeAbortAndRequeue(const SchedulerLimits&) {
  return std::make_unique<AbortAndRequeue>();
}

}  // namespace tactus::sched
