// Preemption by turns, as in Learning to Rank and FastServe: in every step all sequences, running or waiting, are
// looked at in the order's order, and the first that fit the budget and the --max-num-seqs places make up the step. A
// running sequence that is left out is paused: it keeps its KV and goes on when its turn comes. KV changes hands only
// where it is short: whoever goes next takes it from the order's last, running sequences by what the preemption says of
// a shortage, waiting ones by whom it lets give way.
//
// A prompt that does not fit holds back those behind it that have not started; decodes behind it go on.
#include "sched/choices.h"
#include "sched/context.h"
#include "sched/newcomers.h"

namespace tactus::sched {
namespace {

class Ranked final : public Composition {
 public:
  explicit Ranked(bool whole) : whole_(whole) {}
  void Describe(ChoiceTraits* traits) const override {
    traits->splits_prompts = !whole_;
    traits->pauses = true;
  }

  void Compose(StepContext& step) override {
    const RunningByRank& running = *step.running_by_rank;
    RunningByRank::Cursor front, tail = running.End();
    SlotId next_running = running.Next(&front);
    Newcomers waiting(step.view, &step.order, step.plan);
    SlotId next_waiting = step.view.waiting.empty() ? kNoSlot : waiting.Next();
    while (step.plan.tokens_left() > 0 && step.plan.places_left() > 0 &&
           (next_running != kNoSlot || next_waiting != kNoSlot)) {
      if (next_running != kNoSlot &&
          (next_waiting == kNoSlot || step.order.Before(step.view, next_running, next_waiting))) {
        if (!step.plan.AddDecode(next_running)) {
          step.Run(next_running, kNoLimit, whole_ && !step.IsDecode(next_running));
        }
        next_running = running.Next(&front);
      } else {
        next_waiting = Start(step, next_waiting, &tail) ? waiting.Next() : kNoSlot;
      }
    }
    step.FreeAhead(tail);
  }

 private:
  // `tail`: of the running sequences, behind the last that has not given way.
  bool Start(StepContext& step, SlotId slot, RunningByRank::Cursor* tail) {
    if (step.plan.has_preempted()) return false;  // nothing starts in a step that had to preempt
    AddResult result = step.Admit(slot, kNoLimit, whole_);
    if (result == AddResult::kNoBlocks && step.MakeRoomFor(slot, tail)) result = step.Admit(slot, kNoLimit, whole_);
    return result == AddResult::kAdded;
  }

  const bool whole_;
};

}  // namespace

std::unique_ptr<Composition> MakeRanked(const SchedulerLimits&) {
  return std::make_unique<Ranked>(false);
}
std::unique_ptr<Composition> MakeRankedWhole(const SchedulerLimits&) {
  return std::make_unique<Ranked>(true);
}

}  // namespace tactus::sched
