// Orders under random arrivals, admissions, preemptions and cancels: their walks against a plain sort, instances made
// fresh or in the middle of a run against the first one, and the index of the running sequences by rank.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/rng.h"
#include "core/sched/policy.h"
#include "core/seq/sequence_table.h"

namespace tactus::testing {

using core::Order;
using core::SchedulerLimits;
using core::StepView;

std::vector<SlotId> Walk(Order* order, const StepView& view);

// Arrivals, admissions with some output, preemptions, cancels and ends, a few at a time.
void Churn(core::SequenceTable* t, Rng* rng, TimeNs now_ns, int moves = 6);

// Predictions that depend on the step: an order must keep the prediction that a sequence was filed by.
class Drifting final : public core::LengthPredictor {
 public:
  int64_t step = 0;
  const char* name() const override { return "drifting"; }
  bool learns() const override { return true; }
  void Bind(SlotId, const core::PredictionFeatures&) override {}
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    return static_cast<int32_t>(std::min<int64_t>(30, 1 + (slot * 7 + step * 3) % 25 + 5 * attempt));
  }
};

using Key = std::vector<double>;
// The sort key of an order's walk; receives every change first.
struct Reference {
  virtual ~Reference() = default;
  virtual void Forget() {}
  virtual void Queued(const StepView&, SlotId) {}
  virtual void Admitted(const StepView&, SlotId) {}
  virtual void Served(const StepView&, const StepItem&) {}
  virtual void BeforeWalk(const StepView&) {}
  virtual Key KeyOf(const StepView& view, SlotId s) const = 0;
};

SchedulerLimits Limits(const core::LengthPredictor* predictor, core::NoteLayout* notes);

void CheckAgainstSort(std::unique_ptr<Order> (*make)(const SchedulerLimits&), Reference* reference);

// Compositions that mix queued and partly done prompts call Before instead of walking: both must agree on any two
// waiting sequences.
void CheckBeforeAgainstWalk(const char* name, std::unique_ptr<Order> (*make)(const SchedulerLimits&));

inline double Arrival(const StepView& view, SlotId s) {
  return static_cast<double>(view.seq.arrival_order[s]);
}
inline double Output(const StepView& view, SlotId s) {
  return view.seq.known_committed[s] - view.seq.prompt_tokens[s];
}

}  // namespace tactus::testing
