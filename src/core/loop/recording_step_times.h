// Stores the step times that a scheduler reads from its model, for a recording: in a replay the policies make the same
// calls in the same order. Thread rule: engine thread only (before it starts: the thread that creates the scheduler).
#pragma once

#include <vector>

#include "base/step_time_model.h"

namespace tactus::core {

// Forwards every call and stores the results until Clear. Schedulers read times of whole steps only; their limits have
// the data about a pipeline.
class RecordingStepTimes final : public StepTimeModel {
 public:
  explicit RecordingStepTimes(const StepTimeModel* model) : model_(*model) {}
  DurationNs StepTimeNs(const StepShape& shape) const override {
    answers_.push_back(model_.StepTimeNs(shape));
    return answers_.back();
  }
  int32_t tile_tokens() const override { return model_.tile_tokens(); }
  const std::vector<DurationNs>& answers() const { return answers_; }
  void Clear() { answers_.clear(); }

 private:
  const StepTimeModel& model_;
  mutable std::vector<DurationNs> answers_;
};

}  // namespace tactus::core
