// Shortest predicted remaining output first (TRAIL; with the oracle predictor TRAIL+ of the LARRY paper). The
// prediction is made when a sequence is queued; generated tokens count down from it. Running sequences rank the same
// way, so the one with the most left is the first to lose its KV. Long requests can starve.
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"
#include "core/sched/predicted_length.h"

namespace tactus::core {
namespace {

class SrptOrder final : public KeyedOrder {
 public:
  explicit SrptOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity), predictor_(limits.predictor), prediction_(limits.Note<PredictionNote>()) {}
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  bool ranks() const override { return true; }
  int64_t RankOf(const StepView& view, SlotId slot) const override { return Remaining(view, slot); }

 protected:
  void OnQueued(const StepView& view, SlotId slot) override {
    prediction_.At(view.notes, slot).output_tokens = PredictOutput(*predictor_, view, slot, 0);
  }
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    return {Remaining(view, slot), 0, view.seq.arrival_order[slot]};
  }

 private:
  int64_t Remaining(const StepView& view, SlotId slot) const {
    return ExpectedOutput(prediction_.At(view.notes, slot), *predictor_, view, slot) - GeneratedTokens(view, slot);
  }

  const LengthPredictor* const predictor_;
  const NoteColumn<PredictionNote> prediction_;
};

}  // namespace

std::unique_ptr<Order> MakeSrptOrder(const SchedulerLimits& limits) {
  return std::make_unique<SrptOrder>(limits);
}

}  // namespace tactus::core
