// By place in the job's plan, from first to last. A plan that walks the tree of prompts depth first (docs/batch.md)
// brings those that share a prefix together, so that it is computed once and then dropped for good. A preempted
// sequence goes back to the queue's head; requests that no plan has placed go before those, first come, first served.
#include "sched/choices.h"
#include "sched/order/sorted_queue.h"

namespace tactus::sched {
namespace {

class DfsOrder final : public KeyedOrder {
 public:
  using KeyedOrder::KeyedOrder;

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {view.seq.preemptions[slot] > 0 ? 0 : 1, view.seq.planned[slot].position, view.seq.arrival_order[slot]};
  }
};

}  // namespace

std::unique_ptr<Order> MakeDfsOrder(const SchedulerLimits& limits) {
  return std::make_unique<DfsOrder>(limits.slot_capacity);
}

}  // namespace tactus::sched
