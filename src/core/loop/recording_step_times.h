// Keeps what a scheduler asked of its step-time model, for whoever records the run: policies ask the same questions in
// the same order when it is played again. Thread rule: engine thread only (and the maker of the scheduler, before).
#pragma once

#include <vector>

#include "base/step_time_model.h"

namespace tactus::core {

// Passes every question on and keeps the answers until they are taken. Schedulers ask for whole steps only; what they
// must know of a pipeline is in their limits.
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
