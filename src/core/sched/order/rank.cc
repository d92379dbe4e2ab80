// Learning to Rank (Fu et al., NeurIPS 2024), as in its authors' code: by predicted output length, predicted once,
// where only the ranking matters, with a guard against starvation. A sequence that was in none of the last
// --ltr-starvation-steps steps, whether or not it holds KV, is promoted: it goes before all that are not promoted,
// until it has been in --ltr-quantum-steps steps.
//
// Ours: promoted sequences go longest unserved first, not by predicted length, which would bound nothing if more are
// promoted than fit. And every promotion makes progress: if its whole quantum only recomputed what a preemption had
// dropped, it continues, and from then on such steps do not count against this sequence's quantum. Otherwise the next
// promoted sequence would take the KV, over and over, and no answer would end.
#include <algorithm>
#include <functional>
#include <vector>

#include "core/sched/choices.h"
#include "core/sched/order/promoting.h"
#include "core/sched/predicted_length.h"

namespace tactus::core {
namespace {

constexpr Knob<int64_t> kStarvationSteps{
    "ltr-starvation-steps",
    200,
    {.unit = "steps",
     .min = 1,
     .max = 1 << 30,
     .help = "order rank: steps without service after which a sequence is promoted to go first"}};
constexpr Knob<int64_t> kQuantumSteps{
    "ltr-quantum-steps",
    10,
    {.unit = "steps", .min = 1, .max = 1 << 30, .help = "order rank: steps in which a promoted sequence goes first"}};

struct RankNote {
  int64_t since_step;      // first step that did not include it
  int64_t promoted_since;  // since_step when it was promoted
  int32_t quantum_left;    // more than 0: it is promoted, for this many of its steps
  int32_t reached;         // end of the positions that it has ever computed, including those dropped by a preemption
  bool brought;            // this promotion computed a position for the first time
  bool again_is_free;      // recomputation does not count against its quantum
};

// Below any step number or length.
constexpr int64_t kPromotedBand = -(int64_t{1} << 48);

class RankOrder final : public PromotingOrder {
 public:
  explicit RankOrder(const SchedulerLimits& limits)
      : PromotingOrder(limits.slot_capacity),
        predictor_(limits.predictor),
        threshold_(limits.policy[kStarvationSteps]),
        quantum_(static_cast<int32_t>(limits.policy[kQuantumSteps])),
        note_(limits.Note<RankNote>()),
        prediction_(limits.Note<PredictionNote>()),
        watched_(static_cast<size_t>(limits.slot_capacity), 0) {
    watch_.reserve(watched_.size());
  }
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override {
    return IsPromoted(view, slot) ? kPromotedBand + SinceOf(view, slot) : Predicted(view, slot);
  }
  void Apply(const StepView& view) override {
    PromotingOrder::Apply(view);
    FindPromoted(view);
  }
  void Rebuild(const StepView& view) override {
    PromotingOrder::Rebuild(view);
    watch_.clear();
    watched_.assign(watched_.size(), 0);
    for (const SlotId slot : view.running) Watch(view, slot);
    FindPromoted(view);
  }
  void Planned(const StepView& view, std::span<const StepItem> items) override {
    PromotingOrder::Planned(view, items);
    for (const StepItem& item : items) {
      RankNote& note = note_.At(view.notes, item.slot);
      const bool promoted = IsPromoted(view, item.slot);
      if (view.step - note.since_step >= threshold_) {
        if (note.quantum_left == 0) {
          note.promoted_since = note.since_step;
          note.brought = false;
        }
        note.quantum_left = quantum_;
      }
      const int32_t end = item.first_position + item.count - item.draft_tokens;
      note.brought |= end > note.reached;
      if (note.quantum_left > 0 && (end > note.reached || !note.again_is_free) && --note.quantum_left == 0 &&
          !note.brought) {
        note.again_is_free = true;
        note.quantum_left = quantum_;
      }
      note.reached = std::max(note.reached, end);
      if (promoted && note.quantum_left == 0) NoteReranked(item.slot);  // till then it ranks by its promotion's time
      note.since_step = view.step + 1;
      Watch(view, item.slot);
    }
  }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    PredictionNote& prediction = prediction_.At(view.notes, slot);
    if (prediction.output_tokens > 0) return;  // it was queued before
    prediction.output_tokens = std::max(1, PredictOutput(*predictor_, view, slot, 0));
    note_.At(view.notes, slot).since_step = view.step;
  }
  void OnAdmitted(const StepView& view, SlotId slot) override { Watch(view, slot); }
  int64_t SinceOf(const StepView& view, SlotId slot) const override {
    const RankNote& note = note_.At(view.notes, slot);
    return note.quantum_left > 0 ? note.promoted_since : note.since_step;
  }
  bool IsPromoted(const StepView& view, SlotId slot) const override {
    const RankNote& note = note_.At(view.notes, slot);
    return note.quantum_left > 0 || view.step - note.since_step >= threshold_;
  }

 private:
  // An entry to check once the sequence may have gone unserved for long enough.
  struct Watched {
    int64_t since_step;  // a lower bound of the current value
    SlotId slot;
    bool operator>(const Watched& other) const { return since_step > other.since_step; }
  };
  void Watch(const StepView& view, SlotId slot) {
    if (watched_[static_cast<size_t>(slot)] != 0) return;
    watched_[static_cast<size_t>(slot)] = 1;
    watch_.push_back({note_.At(view.notes, slot).since_step, slot});
    std::push_heap(watch_.begin(), watch_.end(), std::greater<>());
  }
  // Finds running sequences that are now promoted because steps left them out. A promoted one is watched again once it
  // is served.
  void FindPromoted(const StepView& view) {
    while (!watch_.empty() && view.step - watch_.front().since_step >= threshold_) {
      const SlotId slot = watch_.front().slot;
      std::pop_heap(watch_.begin(), watch_.end(), std::greater<>());
      watch_.pop_back();
      watched_[static_cast<size_t>(slot)] = 0;
      if (!view.seq.HoldsKv(slot)) continue;
      if (IsPromoted(view, slot)) {
        NoteReranked(slot);
      } else {
        Watch(view, slot);
      }
    }
  }
  int64_t Predicted(const StepView& view, SlotId slot) const { return prediction_.At(view.notes, slot).output_tokens; }

  const LengthPredictor* const predictor_;
  const int64_t threshold_;
  const int32_t quantum_;
  const NoteColumn<RankNote> note_;
  const NoteColumn<PredictionNote> prediction_;
  // Sequences that may hold KV without being promoted, least served first; stale entries are dropped when they reach
  // the top.
  std::vector<Watched> watch_;    // a heap
  std::vector<uint8_t> watched_;  // [capacity] bool: it has an entry
};

}  // namespace

constinit const KnobList kRankKnobs{&kStarvationSteps, &kQuantumSteps};

std::unique_ptr<Order> MakeRankOrder(const SchedulerLimits& limits) {
  return std::make_unique<RankOrder>(limits);
}

}  // namespace tactus::core
