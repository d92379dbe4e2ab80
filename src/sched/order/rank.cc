// Learning to Rank: the queue in order of predicted output length, which only has to be right in comparison, with the
// paper's guard against starvation. A sequence that has waited --ltr-starvation-steps steps is promoted: it goes before
// all that are not, the promoted among each other by how long they have waited. Once it runs it keeps the precedence
// for a quantum of
// --ltr-quantum-steps steps (the last to lose its KV), and carries over what is left of it if it is preempted all the
// same.
//
// SequenceNote: level 1 is promoted, quantum_tokens the steps of precedence that are left, since_step when that count
// or the wait began.
#include <algorithm>

#include "sched/choices.h"
#include "sched/order/slot_lists.h"
#include "sched/order/sorted_queue.h"
#include "sched/predicted_length.h"

namespace tactus::sched {
namespace {

class RankOrder final : public KeyedOrder {
 public:
  explicit RankOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity),
        predictor_(limits.predictor),
        threshold_(limits.policy.ltr_starvation_steps),
        quantum_(static_cast<int32_t>(limits.policy.ltr_quantum_steps)),
        waits_(limits.slot_capacity, 1) {}
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  bool ranks() const override { return true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override { return Promoted(view, slot) ? 0 : 1; }

  void Apply(const StepView& view) override {
    KeyedOrder::Apply(view);
    for (const SequenceChange& change : view.changes) {
      if (change.kind == ChangeKind::kQueued) waits_.InsertByKey(0, change.slot, view.notes[change.slot].since_step);
      if (change.kind != ChangeKind::kQueued && waits_.ListOf(change.slot) == 0) waits_.Remove(change.slot);
    }
  }
  void Rebuild(const StepView& view) override {
    KeyedOrder::Rebuild(view);
    waits_.Clear();
    sorted_.assign(view.waiting.begin(), view.waiting.end());
    std::sort(sorted_.begin(), sorted_.end(),
              [&view](SlotId a, SlotId b) { return view.notes[a].since_step < view.notes[b].since_step; });
    for (const SlotId slot : sorted_) waits_.InsertByKey(0, slot, view.notes[slot].since_step);
  }
  void Start(const StepView& view) override {
    for (SlotId slot = waits_.Head(0); slot != kNoSlot && view.step - waits_.KeyOf(slot) >= threshold_;
         slot = waits_.Head(0)) {
      waits_.Remove(slot);
      SequenceNote& note = view.notes[slot];
      if (note.level == 1) continue;  // was promoted before, and came back with some of its quantum left
      Refile(view, slot, [&] {
        note.level = 1;
        note.quantum_tokens = quantum_;
      });
    }
    KeyedOrder::Start(view);
  }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    SequenceNote& note = view.notes[slot];
    if (note.level == 1) {
      note.quantum_tokens -= static_cast<int32_t>(std::min<int64_t>(note.quantum_tokens, view.step - note.since_step));
      if (note.quantum_tokens == 0) note.level = 0;
    }
    note.rank = PredictOutput(*predictor_, view, slot, 0);
    note.since_step = view.step;
  }
  void OnAdmitted(const StepView& view, SlotId slot) override { view.notes[slot].since_step = view.step; }
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    const SequenceNote& note = view.notes[slot];
    return {note.level == 1 ? 0 : 1, note.level == 1 ? note.since_step : note.rank, view.seq.arrival_order[slot]};
  }

 private:
  bool Promoted(const StepView& view, SlotId slot) const {
    const SequenceNote& note = view.notes[slot];
    return note.level == 1 &&
           (view.seq.state[slot] == SeqState::kWaiting || view.step - note.since_step < note.quantum_tokens);
  }

  const LengthPredictor* const predictor_;
  const int64_t threshold_;
  const int32_t quantum_;
  SlotLists waits_;             // one list: who waits and was not promoted in this wait, longest first
  std::vector<SlotId> sorted_;  // of Rebuild
};

}  // namespace

std::unique_ptr<Order> MakeRankOrder(const SchedulerLimits& limits) {
  return std::make_unique<RankOrder>(limits);
}

}  // namespace tactus::sched
