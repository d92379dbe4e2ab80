// The orders of a plan by name. A plan and the scheduler that runs it have one name for their order
// (src/core/sched/choices.def), so it is chosen once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "offline/plan/plan.h"

namespace tactus::offline {

// None: a scheduler's order that goes by no plan.
std::optional<PlanOrder> FindPlanOrder(std::string_view name);
const char* NameOf(PlanOrder order);
std::string PlanOrderNames();  // "fcfs, dfs, ..."
// It depends on how long answers are: a sample of the job runs first.
inline bool NeedsLengths(PlanOrder order) {
  return StartsFromBothEnds(order);
}

}  // namespace tactus::offline
