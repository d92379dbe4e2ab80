#include "core/loop/corrected_step_times.h"

#include <algorithm>

#include "base/step_shape.h"

namespace tactus::core {

CorrectedStepTimes::Prediction CorrectedStepTimes::Predict(const StepPlan& plan) {
  Prediction p;
  p.by_model_ns = std::max<DurationNs>(1, model_.StepTimeNs(ShapeOf(plan, &chunks_)));
  p.corrected_ns = Corrected(p.by_model_ns);
  p.has_prompt = !plan.prompt_items.empty();
  return p;
}

void CorrectedStepTimes::Ended(const Prediction& predicted, DurationNs measured_ns) {
  if (predicted.by_model_ns == 0 || !predicted.has_prompt || measured_ns <= 0) return;
  ratio_.Observe(measured_ns, predicted.by_model_ns);
}

}  // namespace tactus::core
