// Checks objectives against the shortest step of an engine. Pure: any thread.
#pragma once

#include <string>

#include "base/step_time_model.h"
#include "base/units.h"
#include "tactus/request.h"
#include "tactus/status.h"

namespace tactus {

// "TTFT 500 ms, gap 50 ms, total 10000 ms": the stated objectives, in one unit; empty: none.
std::string ObjectivesText(const Slo& slo);

// The time of a step with one token, of a prompt or an answer, without context: no step is shorter, and no token is
// faster.
DurationNs ShortestStepNs(const StepTimeModel& model);

// Whether a stated objective is shorter than `step_ns`.
bool IsBelow(const Slo& slo, DurationNs step_ns);

// kInvalidArgument, with the field as param: an objective is below the floor (0: unknown), or the first token is due
// after the whole answer.
Status CheckObjectives(const Slo& slo, DurationNs floor_ns);

}  // namespace tactus
