// DeepSpeed-FastGen's Dynamic SplitFuse: decodes first, then prompts in queue order, split or fused so that the step
// has exactly tau tokens; a partly done prompt does not precede one that the order puts before it.
//
// No sequence is preempted while any can continue: a decode short of a block sits the step out and keeps its KV, and a
// prompt continues only if free blocks hold all that is left of it. The first prompt that waits for that holds back
// those behind it. Once all are stuck, the scheduler's last resort frees the youngest.
#include <algorithm>
#include <vector>

#include "core/sched/choices.h"
#include "core/sched/context.h"

namespace tactus::core {
namespace {

class ExactFill final : public Composition {
 public:
  explicit ExactFill(const SchedulerLimits& limits) { partial_.reserve(static_cast<size_t>(limits.max_num_seqs)); }
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }

  void Compose(StepContext& step) override {
    for (const SlotId slot : step.RunningByArrival()) {
      if (!step.plan.AddDecode(slot) && step.IsDecode(slot)) step.plan.AddRunning(slot, kNoLimit, false);
    }
    CollectPartial(step);
    step.order.Start(step.view);
    SlotId next = step.order.Next();
    size_t i = 0;
    while (step.plan.prefill_left() > 0 && (i < partial_.size() || next != kNoSlot)) {
      const bool started = i < partial_.size() && (next == kNoSlot || step.order.Before(step.view, partial_[i], next));
      if (started) {
        if (!RestFits(step, partial_[i])) return;
        step.plan.AddRunning(partial_[i++], kNoLimit, false);
      } else {
        // Later ones may not pass the first that does not fit; started prompts continue.
        next = step.Admit(next) == AddResult::kAdded ? step.order.Next() : kNoSlot;
      }
    }
  }

 private:
  void CollectPartial(const StepContext& step) {
    partial_.clear();
    if (step.view.num_prefilling == 0) return;
    for (const SlotId slot : step.view.running_by_arrival) {
      if (!step.IsDecode(slot)) partial_.push_back(slot);
    }
    std::sort(partial_.begin(), partial_.end(),
              [&step](SlotId a, SlotId b) { return step.order.Before(step.view, a, b); });
  }
  static bool RestFits(const StepContext& step, SlotId slot) {
    const int64_t block_size = step.plan.block_size();
    const int64_t blocks = (step.view.seq.known_committed[slot] + block_size - 1) / block_size;
    return blocks - step.plan.BlocksOf(slot) <= step.plan.blocks_available();
  }

  std::vector<SlotId> partial_;
};

}  // namespace

std::unique_ptr<Composition> MakeExactFill(const SchedulerLimits& limits) {
  return std::make_unique<ExactFill>(limits);
}

}  // namespace tactus::core
