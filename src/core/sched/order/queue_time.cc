// By the time of the last queueing: first come, first served, but a preempted sequence goes to the queue's end
// (DeepSpeed-FastGen).
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

class QueueTimeOrder final : public KeyedOrder {
 public:
  using KeyedOrder::KeyedOrder;

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {view.seq.queued_ns[slot], 0, view.seq.arrival_order[slot]};
  }
};

}  // namespace

std::unique_ptr<Order> MakeQueueTimeOrder(const SchedulerLimits& limits) {
  return std::make_unique<QueueTimeOrder>(limits.slot_capacity);
}

}  // namespace tactus::core
