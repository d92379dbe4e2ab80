#include "loop/corrected_step_times.h"

#include <algorithm>

#include "loop/step_shape.h"

namespace tactus {

CorrectedStepTimes::Prediction CorrectedStepTimes::Predict(const StepPlan& plan) {
  Prediction p;
  p.by_model_ns = std::max<DurationNs>(1, model_.StepTimeNs(ShapeOf(plan, &chunks_)));
  p.corrected_ns = Corrected(p.by_model_ns);
  p.has_prompt = !plan.prompt_items.empty();
  return p;
}

void CorrectedStepTimes::Ended(const Prediction& predicted, DurationNs measured_ns) {
  if (predicted.by_model_ns == 0 || !predicted.has_prompt || measured_ns <= 0) return;
  const auto by_model = static_cast<double>(predicted.by_model_ns);
  window_[observed_++ % kWindow] = {static_cast<double>(measured_ns) / by_model, by_model};
  factor_ = std::clamp(WeightedMedian(), kLeast, kMost);
}

double CorrectedStepTimes::WeightedMedian() {
  const auto end = sorted_.begin() + static_cast<ptrdiff_t>(std::min(observed_, kWindow));
  std::copy_n(window_.begin(), end - sorted_.begin(), sorted_.begin());
  std::sort(sorted_.begin(), end, [](const Observed& a, const Observed& b) { return a.ratio < b.ratio; });
  double all = 0, below = 0;
  for (auto o = sorted_.begin(); o != end; ++o) all += o->weight;
  for (auto o = sorted_.begin(); o != end; ++o) {
    below += o->weight;
    if (2 * below >= all) return o->ratio;
  }
  return 1;
}

}  // namespace tactus
