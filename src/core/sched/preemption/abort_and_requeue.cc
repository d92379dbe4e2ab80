// S3's supervisor: a sequence that outgrows its reservation is taken out of the batch, gets a longer prediction and is
// queued again. Its output is kept and computed again with its prompt. Within the reservations no sequence meets a
// shortage; if one does, the last to arrive gives way.
#include "core/sched/choices.h"
#include "core/sched/plan.h"
#include "core/sched/predicted_length.h"

namespace tactus::core {
namespace {

class AbortAndRequeue final : public Preemption {
 public:
  explicit AbortAndRequeue(const SchedulerLimits& limits) : reservation_(limits.Note<ReservationNote>()) {}
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = traits->aborts_outgrown = true; }
  bool Outgrown(const StepView& view, SlotId slot) const override {
    return view.seq.Pending(slot) > 0 &&
           view.seq.computed_planned[slot] >= reservation_.At(view.notes, slot).reserved_tokens;
  }
  void Aborted(const StepView& view, SlotId slot) const override { ++reservation_.At(view.notes, slot).retries; }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order&, SlotId) const override {
    for (auto it = view.running_by_arrival.rbegin(); it != view.running_by_arrival.rend(); ++it) {
      if (!plan.Touched(*it)) return *it;
    }
    return kNoSlot;
  }

 private:
  const NoteColumn<ReservationNote> reservation_;
};

}  // namespace

std::unique_ptr<Preemption> MakeAbortAndRequeue(const SchedulerLimits& limits) {
  return std::make_unique<AbortAndRequeue>(limits);
}

}  // namespace tactus::core
