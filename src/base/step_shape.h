// The part of a plan that step-time models use.
#pragma once

#include <vector>

#include "base/step.h"
#include "base/step_time_model.h"

namespace tactus {

// The shape refers to *chunks and to the plan.
StepShape ShapeOf(const StepPlan& plan, std::vector<ChunkShape>* chunks);

}  // namespace tactus
