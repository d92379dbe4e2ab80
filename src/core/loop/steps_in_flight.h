// The plans that the executor runs, in order, and the records of the last ended steps. A plan does not move from Submit
// until its result has been polled. Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/step.h"
#include "core/interfaces/sequence_columns.h"
#include "core/loop/corrected_step_times.h"

namespace tactus::core {

struct InFlight {
  StepPlan plan;
  std::vector<uint32_t> epochs;  // of the items' sequences, when planned
  CorrectedStepTimes::Prediction predicted;
};

class StepsInFlight {
 public:
  StepsInFlight(int32_t max_in_flight, size_t max_items) : ring_(static_cast<size_t>(max_in_flight)) {
    for (InFlight& f : ring_) {
      f.epochs.reserve(max_items);
      f.plan.items.reserve(max_items);
      f.plan.starts.reserve(max_items);
      f.plan.table_updates.reserve(2 * max_items);
      f.plan.table_blocks.reserve(4 * max_items);
      f.plan.preempts.reserve(max_items);
      f.plan.tokens.reserve(4 * max_items);
    }
  }

  int32_t count() const { return static_cast<int32_t>(count_); }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == ring_.size(); }
  StepId next_step() const { return next_step_; }  // number of the next submitted step

  // The entry in which the next step is planned. Precondition: not full.
  InFlight& Next() { return ring_[(head_ + count_) % ring_.size()]; }
  void Submitted() {
    ++next_step_;
    ++count_;
  }
  // The oldest step, whose result is polled next. Precondition: not empty.
  InFlight& Oldest() { return ring_[head_]; }
  const InFlight& Oldest() const { return ring_[head_]; }
  // The oldest step has ended. Its plan stays readable until another step is planned.
  void Ended(const StepRecord& record) {
    recent_[ended_++ % recent_.size()] = record;
    head_ = head_ + 1 == ring_.size() ? 0 : head_ + 1;
    --count_;
  }

  // Since when the executor has had the oldest step as its next one. Precondition: not empty.
  TimeNs oldest_since_ns() const {
    const TimeNs last_end_ns = ended_ == 0 ? 0 : recent_[(ended_ - 1) % recent_.size()].end_ns;
    return std::max(ring_[head_].plan.planned_ns, last_end_ns);
  }

  // Records of the last ended steps: a ring whose oldest entry is at recent_begin().
  std::span<const StepRecord> recent() const { return {recent_.data(), std::min(ended_, recent_.size())}; }
  int32_t recent_begin() const { return ended_ > recent_.size() ? static_cast<int32_t>(ended_ % recent_.size()) : 0; }

 private:
  std::vector<InFlight> ring_;
  size_t head_ = 0, count_ = 0;
  StepId next_step_ = 0;
  std::array<StepRecord, 128> recent_{};
  size_t ended_ = 0;
};

}  // namespace tactus::core
