// Preemption by turns, as in Learning to Rank and FastServe: in every step all sequences, running or waiting, are
// looked at in the order's order, and the first that fit the budget and the --max-num-seqs places make up the step. A
// running sequence that is left out is paused: it keeps its KV and goes on when its turn comes. KV changes hands only
// where it is short: whoever goes next takes it from the order's last, running sequences by what the preemption says of
// a shortage, waiting ones by whom it lets give way.
//
// A prompt that does not fit holds back those behind it that have not started; decodes behind it go on.
#include <vector>

#include "sched/choices.h"
#include "sched/context.h"

namespace tactus::sched {
namespace {

class Ranked final : public Composition {
 public:
  Ranked(const SchedulerLimits& limits, bool whole) : whole_(whole) {
    running_.reserve(static_cast<size_t>(limits.slot_capacity));
  }
  void Describe(ChoiceTraits* traits) const override {
    traits->splits_prompts = !whole_;
    traits->pauses = true;
  }

  void Compose(StepContext& step) override {
    const std::span<const SlotId> ordered = step.RunningByArrival();
    running_.assign(ordered.begin(), ordered.end());
    tail_ = running_;
    step.order.Start(step.view);
    SlotId next = step.view.waiting.empty() ? kNoSlot : step.order.Next();
    size_t i = 0;
    while (step.plan.tokens_left() > 0 && step.plan.places_left() > 0 && (i < running_.size() || next != kNoSlot)) {
      if (i < running_.size() && (next == kNoSlot || step.order.Before(step.view, running_[i], next))) {
        const SlotId slot = running_[i++];
        if (!step.plan.AddDecode(slot)) step.Run(slot, kNoLimit, whole_ && !step.IsDecode(slot));
      } else {
        next = Start(step, next) ? step.order.Next() : kNoSlot;
      }
    }
    step.FreeAhead(tail_);
  }

 private:
  bool Start(StepContext& step, SlotId slot) {
    if (step.plan.has_preempted()) return false;  // nothing starts in a step that had to preempt
    AddResult result = step.Admit(slot, kNoLimit, whole_);
    if (result == AddResult::kNoBlocks && step.MakeRoomFor(slot, &tail_)) result = step.Admit(slot, kNoLimit, whole_);
    return result == AddResult::kAdded;
  }

  const bool whole_;
  std::vector<SlotId> running_;   // of the step, in order
  std::span<const SlotId> tail_;  // of it, up to the last that has not given way
};

}  // namespace

std::unique_ptr<Composition> MakeRanked(const SchedulerLimits& limits) {
  return std::make_unique<Ranked>(limits, false);
}
std::unique_ptr<Composition> MakeRankedWhole(const SchedulerLimits& limits) {
  return std::make_unique<Ranked>(limits, true);
}

}  // namespace tactus::sched
