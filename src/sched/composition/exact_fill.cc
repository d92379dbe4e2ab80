// DeepSpeed-FastGen's Dynamic SplitFuse: decodes first, then prompts in queue order, split or fused so that the step
// has exactly tau tokens; a partly done prompt has no precedence over one that the order puts before it.
#include <algorithm>
#include <vector>

#include "sched/choices.h"
#include "sched/context.h"

namespace tactus::sched {
namespace {

class ExactFill final : public Composition {
 public:
  explicit ExactFill(const SchedulerLimits& limits) { partial_.reserve(static_cast<size_t>(limits.max_num_seqs)); }
  void Describe(ChoiceTraits* traits) const override { traits->splits_prompts = true; }

  void Compose(StepContext& step) override {
    step.RunDecodes();
    CollectPartial(step);
    step.order.Start(step.view);
    SlotId next = step.plan.has_preempted() ? kNoSlot : step.order.Next();
    size_t i = 0;
    while (step.plan.prefill_left() > 0 && (i < partial_.size() || next != kNoSlot)) {
      const bool started = i < partial_.size() && (next == kNoSlot || step.order.Before(step.view, partial_[i], next));
      if (started) {
        step.Run(partial_[i++]);
      } else {
        // Later ones may not pass the first that does not fit; what has started goes on.
        const bool added = !step.plan.has_preempted() && step.Admit(next) == AddResult::kAdded;
        next = added ? step.order.Next() : kNoSlot;
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

  std::vector<SlotId> partial_;
};

}  // namespace

std::unique_ptr<Composition> MakeExactFill(const SchedulerLimits& limits) {
  return std::make_unique<ExactFill>(limits);
}

}  // namespace tactus::sched
