// First come, first served; but a sequence that has been queued more than --patience times goes behind all others.
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

constexpr Knob<int64_t> kPatience{
    "patience",
    1,
    {.unit = "times", .min = 0, .max = 100, .help = "order patient: sequences queued more often than this go last"}};

struct QueuedNote {
  int32_t times;
};

class PatientOrder final : public KeyedOrder {
 public:
  explicit PatientOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity), patience_(limits.policy[kPatience]), queued_(limits.Note<QueuedNote>()) {}

 protected:
  void OnQueued(const StepView& view, SlotId slot) override { ++queued_.At(view.notes, slot).times; }
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {queued_.At(view.notes, slot).times > patience_ ? 1 : 0, 0, view.seq.arrival_order[slot]};
  }

 private:
  const int64_t patience_;
  const NoteColumn<QueuedNote> queued_;
};

}  // namespace

constinit const KnobList kPatientKnobs{&kPatience};

std::unique_ptr<Order> MakePatientOrder(const SchedulerLimits& limits) {
  return std::make_unique<PatientOrder>(limits);
}

}  // namespace tactus::core
