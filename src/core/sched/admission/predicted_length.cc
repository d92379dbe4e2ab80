// S3: reserves blocks for the prompt and the predicted output, at most for max_tokens. Like S3's classifier, which
// predicts a class of output length and reserves its upper end, it rounds the prediction up to a tenth of max_tokens. A
// sequence that has outgrown a reservation gets a longer prediction (ReservationNote::retries).
#include <algorithm>

#include "core/sched/choices.h"
#include "core/sched/predicted_length.h"

namespace tactus::core {
namespace {

constexpr int32_t kLengthClasses = 10;

class PredictedLength final : public Admission {
 public:
  explicit PredictedLength(const SchedulerLimits& limits)
      : predictor_(limits.predictor),
        max_model_len_(limits.max_model_len),
        keep_free_(KeepFreeBlocks(limits)),
        reservation_(limits.Note<ReservationNote>()) {}
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = traits->reserves_output = true; }
  KvDemand Demand(const StepView& view, SlotId slot, int32_t) const override {
    ReservationNote& note = reservation_.At(view.notes, slot);
    const int32_t most = view.seq.max_output_tokens[slot];
    const int32_t width = (most + kLengthClasses - 1) / kLengthClasses;
    const int32_t predicted = PredictOutput(*predictor_, view, slot, note.retries);
    const int32_t output = std::min(most, (predicted + width - 1) / width * width);
    note.reserved_tokens = std::min(max_model_len_, view.seq.prompt_tokens[slot] + output);
    return {note.reserved_tokens, keep_free_};
  }

 private:
  const LengthPredictor* const predictor_;
  const int32_t max_model_len_;
  const int64_t keep_free_;
  const NoteColumn<ReservationNote> reservation_;
};

}  // namespace

std::unique_ptr<Admission> MakePredictedLength(const SchedulerLimits& limits) {
  return std::make_unique<PredictedLength>(limits);
}

}  // namespace tactus::core
