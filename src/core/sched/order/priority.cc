// By Request::priority (lower runs first, as in vLLM); within one priority as fcfs. Preemption takes its victims from
// the least important.
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

class PriorityOrder final : public KeyedOrder {
 public:
  using KeyedOrder::KeyedOrder;
  bool ranks() const override { return true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override { return view.seq.priority[slot]; }
  std::span<const SlotId> Reranked(const StepView&) const override { return {}; }

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {view.seq.priority[slot], view.seq.preemptions[slot] > 0 ? 0 : 1, view.seq.arrival_order[slot]};
  }
};

}  // namespace

std::unique_ptr<Order> MakePriorityOrder(const SchedulerLimits& limits) {
  return std::make_unique<PriorityOrder>(limits.slot_capacity);
}

}  // namespace tactus::core
