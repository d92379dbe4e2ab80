// S3's packing, first half: the longest predicted sequence first, prompt and output together. Decreasing lengths only
// make sense over a set, so the oldest --s3-window requests of the queue are sorted, and the next are taken when all of
// them have started: a later request passes none of an earlier window. A sequence that has outgrown its reservation
// counts with the new prediction and stays in the window.
//
// Composition first-fit is the other half: it passes over sequences that do not fit, within the window (Group).
#include <algorithm>

#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"
#include "core/sched/predicted_length.h"

namespace tactus::core {
namespace {

constexpr Knob<int64_t> kSortWindow{
    "s3-window",
    64,
    {.unit = "requests",
     .min = 1,
     .max = 1 << 16,
     .help = "order decreasing: number of the queue's oldest requests that are sorted, longest first, and start "
             "ahead of later ones"}};

constexpr int64_t kOutside = int64_t{1} << 40;

struct PackingNote {
  int32_t in_window;
  int32_t tokens;  // predicted length of the whole sequence
};

class DecreasingOrder final : public KeyedOrder {
 public:
  explicit DecreasingOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity),
        predictor_(limits.predictor),
        window_(static_cast<size_t>(limits.policy[kSortWindow])),
        packing_(limits.Note<PackingNote>()),
        reservation_(limits.Note<ReservationNote>()) {
    taken_.reserve(window_);
  }
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  int64_t Group(const StepView& view, SlotId slot) const override { return packing_.At(view.notes, slot).in_window; }

  void Start(const StepView& view) override {
    KeyedOrder::Start(view);
    SlotId slot = Next();
    if (slot != kNoSlot && Group(view, slot) == 0) {
      taken_.clear();
      for (; slot != kNoSlot && taken_.size() < window_; slot = Next()) taken_.push_back(slot);
      for (const SlotId taken : taken_) {
        Remove(taken);
        packing_.At(view.notes, taken).in_window = 1;
      }
      // Shortest to longest: each goes before all entries of the queue.
      std::sort(taken_.begin(), taken_.end(), [&](SlotId a, SlotId b) { return KeyOf(view, a) < KeyOf(view, b); });
      for (auto it = taken_.rbegin(); it != taken_.rend(); ++it) Insert(KeyOf(view, *it), *it);
    }
    KeyedOrder::Start(view);
  }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    packing_.At(view.notes, slot).tokens =
        view.seq.prompt_tokens[slot] +
        PredictOutput(*predictor_, view, slot, reservation_.At(view.notes, slot).retries);
  }
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    const PackingNote& note = packing_.At(view.notes, slot);
    return {note.in_window != 0 ? -int64_t{note.tokens} : kOutside, 0, view.seq.arrival_order[slot]};
  }

 private:
  const LengthPredictor* const predictor_;
  const size_t window_;
  const NoteColumn<PackingNote> packing_;
  const NoteColumn<ReservationNote> reservation_;
  std::vector<SlotId> taken_;  // while a window is formed
};

}  // namespace

constinit const KnobList kDecreasingKnobs{&kSortWindow};

std::unique_ptr<Order> MakeDecreasingOrder(const SchedulerLimits& limits) {
  return std::make_unique<DecreasingOrder>(limits);
}

}  // namespace tactus::core
