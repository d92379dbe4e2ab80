// Returns the step times of a recording (core/loop/recording_step_times.h) to the scheduler, so that a replay makes the
// same decisions without the model. Thread rule: engine thread only (before it starts: the thread that creates the
// scheduler).
#pragma once

#include <deque>
#include <vector>

#include "base/step_time_model.h"

namespace tactus::core {

// Returns the recorded times in order; after the last one, those of `then`. Without `then` it returns 1 ns and sets
// ran_out().
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
  // A recording of an earlier program may have more times than the scheduler's construction reads today.
  void DropUnread() { answers_.clear(); }
  int32_t tile_tokens() const override { return tile_tokens_; }
  bool ran_out() const { return ran_out_; }  // there were more calls than recorded times
  bool drained() const { return answers_.empty(); }

 private:
  const int32_t tile_tokens_;
  const StepTimeModel* const then_;
  mutable std::deque<DurationNs> answers_;
  mutable bool ran_out_ = false;
};

}  // namespace tactus::core
