// Corrects a step-time model while it runs, by what its steps really took: a profile was measured on an idle machine,
// on another day, or in a second at start, and the budget of every step follows from it.
//
// All times are multiplied by one factor: the median of measured / predicted over the last steps that computed prompt
// tokens, each with the weight of its predicted time, within [kLeast, kMost]. Those steps are the ones whose size
// follows from the model; a weighted median is moved neither by a step that the machine disturbed nor by many small
// ones. The first such step already counts, because a long prompt is few steps and a wrong one heals with the next. The
// ratios are of the model's own predictions, so a correction does not act on itself. Where the model is exact the
// factor stays 1 to the bit.
//
// The factor is a function of the results so far. A recording keeps the corrected answers (recording_step_times.h lies
// above this), so a replay needs neither the model nor the correction. Thread rule: engine thread only (and the maker
// of the scheduler, before).
#pragma once

#include <array>
#include <vector>

#include "base/step.h"
#include "base/step_time_model.h"

namespace tactus {

class CorrectedStepTimes final : public StepTimeModel {
 public:
  static constexpr double kLeast = 0.25, kMost = 4;
  static constexpr size_t kWindow = 32;

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

  double factor() const { return factor_; }

 private:
  struct Observed {
    double ratio = 1, weight = 0;
  };
  DurationNs Corrected(DurationNs ns) const {
    return factor_ == 1 ? ns : static_cast<DurationNs>(static_cast<double>(ns) * factor_);
  }
  double WeightedMedian();

  const StepTimeModel& model_;
  double factor_ = 1;
  std::array<Observed, kWindow> window_{};  // a ring
  size_t observed_ = 0;
  std::array<Observed, kWindow> sorted_{};  // scratch
  std::vector<ChunkShape> chunks_;          // scratch
};

}  // namespace tactus
