// The orders of a plan by name. A plan and the scheduler that runs it use one name for their order
// (src/core/sched/choices.def), so it is chosen once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "offline/plan/plan.h"

namespace tactus::offline {

// None: a scheduler's order that uses no plan.
std::optional<PlanOrder> FindPlanOrder(std::string_view name);
const char* NameOf(PlanOrder order);
std::string PlanOrderNames();  // "fcfs, dfs, ..."
// Whether the order depends on the lengths of answers: then a sample of the job runs first.
inline bool NeedsLengths(PlanOrder order) {
  return StartsFromBothEnds(order);
}

}  // namespace tactus::offline
