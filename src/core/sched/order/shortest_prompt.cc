// Shortest prompt first, however long others wait; equal lengths by arrival. A preempted sequence counts with all that
// it has to compute again. Long prompts can starve.
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

class ShortestPromptOrder final : public KeyedOrder {
 public:
  using KeyedOrder::KeyedOrder;

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {view.seq.known_committed[slot], 0, view.seq.arrival_order[slot]};
  }
};

}  // namespace

std::unique_ptr<Order> MakeShortestPromptOrder(const SchedulerLimits& limits) {
  return std::make_unique<ShortestPromptOrder>(limits.slot_capacity);
}

}  // namespace tactus::core
