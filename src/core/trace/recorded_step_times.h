// Answers a scheduler's questions for step times as a recording says (core/loop/recording_step_times.h), so that a
// replay decides alike without the model. Thread rule: engine thread only (and the maker of the scheduler, before).
#pragma once

#include <deque>
#include <vector>

#include "base/step_time_model.h"

namespace tactus::core {

// Answers what was recorded, in order; beyond it asks `then`, or, without one, says 1 ns and that it ran out.
class RecordedStepTimes final : public StepTimeModel {
 public:
  RecordedStepTimes(int32_t tile_tokens, const StepTimeModel* then) : tile_tokens_(tile_tokens), then_(then) {}
  void Expect(const std::vector<DurationNs>& answers) {
    answers_.insert(answers_.end(), answers.begin(), answers.end());
  }
  DurationNs StepTimeNs(const StepShape& shape) const override {
    if (answers_.empty()) {
      ran_out_ = ran_out_ || then_ == nullptr;
      return then_ != nullptr ? then_->StepTimeNs(shape) : 1;
    }
    const DurationNs answer = answers_.front();
    answers_.pop_front();
    return answer;
  }
  int32_t tile_tokens() const override { return tile_tokens_; }
  bool ran_out() const { return ran_out_; }  // a question was asked that the recording does not hold
  bool drained() const { return answers_.empty(); }

 private:
  const int32_t tile_tokens_;
  const StepTimeModel* const then_;
  mutable std::deque<DurationNs> answers_;
  mutable bool ran_out_ = false;
};

}  // namespace tactus::core
