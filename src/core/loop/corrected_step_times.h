// Corrects a step-time model at run time by measured step times. The budget of every step follows from the model, and
// its profile may have been measured on an idle machine, on another day or in one second at start.
//
// All times are multiplied by one factor (measured_ratio.h) over the last steps with prompt tokens, whose size follows
// from the model. The first such step already counts, because a long prompt takes few steps.
//
// The factor is a function of the results so far. A recording stores the corrected times (recording_step_times.h wraps
// this class), so a replay needs neither the model nor the correction. Thread rule: engine thread only (before it
// starts: the thread that creates the scheduler).
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

  // The prediction for a step, made when it is submitted.
  struct Prediction {
    DurationNs by_model_ns = 0;   // 0: no prediction
    DurationNs corrected_ns = 0;  // with the factor at that time
    bool has_prompt = false;
  };
  Prediction Predict(const StepPlan& plan);
  // The predicted step has succeeded and took measured_ns.
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
