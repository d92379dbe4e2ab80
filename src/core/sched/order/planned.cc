// By place in the job's plan (docs/how-to/batch.md), from first to last. The plan determines the order: depth first by
// the tree of prompts, or from both ends of the densities. Preempted sequences go back to the queue's head. Requests
// without a place in the plan go before placed ones, by arrival.
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

class PlannedOrder final : public KeyedOrder {
 public:
  using KeyedOrder::KeyedOrder;

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {view.seq.preemptions[slot] > 0 ? 0 : 1, view.seq.planned[slot].position, view.seq.arrival_order[slot]};
  }
};

}  // namespace

std::unique_ptr<Order> MakePlannedOrder(const SchedulerLimits& limits) {
  return std::make_unique<PlannedOrder>(limits.slot_capacity);
}

}  // namespace tactus::core
