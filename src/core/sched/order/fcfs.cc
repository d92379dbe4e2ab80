// First come, first served. Preempted sequences go back to the queue's head, in order of arrival.
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

class FcfsOrder final : public KeyedOrder {
 public:
  using KeyedOrder::KeyedOrder;

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {view.seq.preemptions[slot] > 0 ? 0 : 1, 0, view.seq.arrival_order[slot]};
  }
};

}  // namespace

std::unique_ptr<Order> MakeFcfsOrder(const SchedulerLimits& limits) {
  return std::make_unique<FcfsOrder>(limits.slot_capacity);
}

}  // namespace tactus::core
