// Preemption by turns, as in Learning to Rank and FastServe: each step goes through all sequences, running or waiting,
// in the order's order, and the first that fit the budget and the --max-num-seqs places make up the step. A running
// sequence that is left out is paused: it keeps its KV and continues when its turn comes. KV is taken from the order's
// last only in a shortage: for running sequences from the preemption's victims, for waiting ones from those that it
// lets give way (GivesWay).
//
// A prompt that does not fit holds back those behind it that have not started; decodes behind it continue.
#include "core/sched/choices.h"
#include "core/sched/context.h"
#include "core/sched/newcomers.h"

namespace tactus::core {
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
    const RankedSlot* next_running = running.Next(&front);
    Newcomers waiting(step.view, &step.order, step.plan);
    SlotId next_waiting = step.view.waiting.empty() ? kNoSlot : waiting.Next();
    RankedSlot waits = RankedOf(step, next_waiting);
    while (step.plan.tokens_left() > 0 && step.plan.places_left() > 0 &&
           (next_running != nullptr || next_waiting != kNoSlot)) {
      if (next_running != nullptr && (next_waiting == kNoSlot || GoesBefore(step, *next_running, waits))) {
        const SlotId slot = next_running->slot;
        if (!step.plan.AddDecode(slot)) step.Run(slot, kNoLimit, whole_ && !step.IsDecode(slot));
        next_running = running.Next(&front);
      } else {
        next_waiting = Start(step, next_waiting, &tail) ? waiting.Next() : kNoSlot;
        waits = RankedOf(step, next_waiting);
      }
    }
    step.FreeAhead(tail);
  }

 private:
  static RankedSlot RankedOf(const StepContext& step, SlotId slot) {
    if (slot == kNoSlot || !step.order.rank_decides()) return {0, 0, slot};
    return {step.order.RankOf(step.view, slot), step.view.seq.arrival_order[slot], slot};
  }
  static bool GoesBefore(const StepContext& step, const RankedSlot& running, const RankedSlot& waiting) {
    return step.order.rank_decides() ? running < waiting : step.order.Before(step.view, running.slot, waiting.slot);
  }
  // `tail`: in the running sequences, after the last that has not given way.
  bool Start(StepContext& step, SlotId slot, RunningByRank::Cursor* tail) {
    if (step.plan.has_preempted()) return false;  // no start in a step that had to preempt
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

}  // namespace tactus::core
