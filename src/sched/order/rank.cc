// Learning to Rank: the queue in order of predicted output length, which only has to be right in comparison, with the
// paper's guard against starvation. A sequence that has waited --ltr-starvation-steps steps is promoted: it goes before
// all that are not, the promoted among each other by how long they have waited. Once it runs it keeps the precedence
// for a quantum of
// --ltr-quantum-steps steps (the last to lose its KV), and carries over what is left of it if it is preempted all the
// same.
#include <algorithm>

#include "sched/choices.h"
#include "sched/order/slot_lists.h"
#include "sched/order/sorted_queue.h"
#include "sched/predicted_length.h"

namespace tactus::sched {
namespace {

constexpr Knob<int64_t> kStarvationSteps{
    "ltr-starvation-steps",
    2048,
    {.unit = "steps",
     .min = 1,
     .max = 1 << 30,
     .help = "order rank: a sequence that has waited for so many steps goes first"}};
constexpr Knob<int64_t> kQuantumSteps{
    "ltr-quantum-steps",
    32,
    {.unit = "steps",
     .min = 1,
     .max = 1 << 30,
     .help = "order rank: for so many of its own steps it is then spared from preemption"}};

struct RankNote {
  bool promoted;
  int32_t quantum_steps;  // of precedence that are left, as of since_step
  int64_t since_step;     // before which it was last queued or admitted
};

class RankOrder final : public KeyedOrder {
 public:
  explicit RankOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity),
        predictor_(limits.predictor),
        threshold_(limits.policy[kStarvationSteps]),
        quantum_(static_cast<int32_t>(limits.policy[kQuantumSteps])),
        note_(limits.Note<RankNote>()),
        prediction_(limits.Note<PredictionNote>()),
        waits_(limits.slot_capacity, 1) {}
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  bool ranks() const override { return true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override { return Promoted(view, slot) ? 0 : 1; }

  void Apply(const StepView& view) override {
    KeyedOrder::Apply(view);
    for (const SequenceChange& change : view.changes) {
      if (change.kind == ChangeKind::kQueued) waits_.InsertByKey(0, change.slot, SinceStep(view, change.slot));
      if (change.kind != ChangeKind::kQueued && waits_.ListOf(change.slot) == 0) waits_.Remove(change.slot);
    }
  }
  void Rebuild(const StepView& view) override {
    KeyedOrder::Rebuild(view);
    waits_.Clear();
    sorted_.assign(view.waiting.begin(), view.waiting.end());
    std::sort(sorted_.begin(), sorted_.end(),
              [&](SlotId a, SlotId b) { return SinceStep(view, a) < SinceStep(view, b); });
    for (const SlotId slot : sorted_) waits_.InsertByKey(0, slot, SinceStep(view, slot));
  }
  void Start(const StepView& view) override {
    for (SlotId slot = waits_.Head(0); slot != kNoSlot && view.step - waits_.KeyOf(slot) >= threshold_;
         slot = waits_.Head(0)) {
      waits_.Remove(slot);
      RankNote& note = note_.At(view.notes, slot);
      if (note.promoted) continue;  // was promoted before, and came back with some of its quantum left
      Refile(view, slot, [&] {
        note.promoted = true;
        note.quantum_steps = quantum_;
      });
    }
    KeyedOrder::Start(view);
  }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    RankNote& note = note_.At(view.notes, slot);
    if (note.promoted) {
      note.quantum_steps -= static_cast<int32_t>(std::min<int64_t>(note.quantum_steps, view.step - note.since_step));
      if (note.quantum_steps == 0) note.promoted = false;
    }
    prediction_.At(view.notes, slot).output_tokens = PredictOutput(*predictor_, view, slot, 0);
    note.since_step = view.step;
  }
  void OnAdmitted(const StepView& view, SlotId slot) override { note_.At(view.notes, slot).since_step = view.step; }
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    const RankNote& note = note_.At(view.notes, slot);
    const int64_t arrival = view.seq.arrival_order[slot];
    if (note.promoted) return {0, note.since_step, arrival};
    return {1, prediction_.At(view.notes, slot).output_tokens, arrival};
  }

 private:
  int64_t SinceStep(const StepView& view, SlotId slot) const { return note_.At(view.notes, slot).since_step; }
  bool Promoted(const StepView& view, SlotId slot) const {
    const RankNote& note = note_.At(view.notes, slot);
    return note.promoted &&
           (view.seq.state[slot] == SeqState::kWaiting || view.step - note.since_step < note.quantum_steps);
  }

  const LengthPredictor* const predictor_;
  const int64_t threshold_;
  const int32_t quantum_;
  const NoteColumn<RankNote> note_;
  const NoteColumn<PredictionNote> prediction_;
  SlotLists waits_;             // one list: who waits and was not promoted in this wait, longest first
  std::vector<SlotId> sorted_;  // of Rebuild
};

}  // namespace

constinit const KnobList kRankKnobs{&kStarvationSteps, &kQuantumSteps};

std::unique_ptr<Order> MakeRankOrder(const SchedulerLimits& limits) {
  return std::make_unique<RankOrder>(limits);
}

}  // namespace tactus::sched
