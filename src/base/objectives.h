// Objectives against what an engine can do at all. Pure: any thread.
#pragma once

#include <string>

#include "base/step_time_model.h"
#include "base/units.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus {

// "TTFT 500 ms, gap 50 ms, total 10000 ms": those that are stated, in one unit; empty: none is.
std::string ObjectivesText(const Slo& slo);

// Of one token without a context, whether of a prompt or of an answer: no step takes less, and no token comes sooner.
DurationNs ShortestStepNs(const StepTimeModel& model);

// An objective is stated that is shorter.
bool IsBelow(const Slo& slo, DurationNs step_ns);

// kInvalidArgument, with the field as param: an objective is below the floor (0: none is known), or the first token is
// due after the whole answer.
Status CheckObjectives(const Slo& slo, DurationNs floor_ns);

}  // namespace tactus
