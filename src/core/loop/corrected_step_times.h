// Corrects a step-time model while it runs, by what its steps really took: a profile was measured on an idle machine,
// on another day, or in a second at start, and the budget of every step follows from it.
//
// All times are multiplied by one factor (measured_ratio.h), of the last steps that computed prompt tokens: those are
// the ones whose size follows from the model. The first such step already counts, because a long prompt is few steps.
//
// The factor is a function of the results so far. A recording keeps the corrected answers (recording_step_times.h lies
// above this), so a replay needs neither the model nor the correction. Thread rule: engine thread only (and the maker
// of the scheduler, before).
#pragma once

#include <vector>

#include "base/step.h"
#include "base/step_time_model.h"
#include "core/loop/measured_ratio.h"

namespace tactus::core {

class CorrectedStepTimes final : public StepTimeModel {
 public:
  explicit CorrectedStepTimes(const StepTimeModel* model) : model_(*model) {}

  DurationNs StepTimeNs(const StepShape& shape) const override { return Corrected(model_.StepTimeNs(shape)); }
  int32_t tile_tokens() const override { return model_.tile_tokens(); }

  // What is predicted of a step when it is submitted.
  struct Prediction {
    DurationNs by_model_ns = 0;   // 0: nothing
    DurationNs corrected_ns = 0;  // as policies saw the model then
    bool has_prompt = false;
  };
  Prediction Predict(const StepPlan& plan);
  // That step has ended well, after so long.
  void Ended(const Prediction& predicted, DurationNs measured_ns);

  double factor() const { return ratio_.factor(); }

 private:
  DurationNs Corrected(DurationNs ns) const {
    return factor() == 1 ? ns : static_cast<DurationNs>(static_cast<double>(ns) * factor());
  }

  const StepTimeModel& model_;
  MeasuredRatio ratio_;
  std::vector<ChunkShape> chunks_;  // scratch
};

}  // namespace tactus::core
