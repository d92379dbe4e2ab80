// The victim rule that most preemptions share.
#pragma once

#include <span>

#include "core/sched/plan.h"
#include "core/sched/policy.h"

namespace tactus::core {

// The last of `slots` among those of lowest rank in the order; kNoSlot if this plan has touched all of them.
inline SlotId LastOfLeastValued(std::span<const SlotId> slots, const StepView& view, const PlanBuilder& plan,
                                const Order& order) {
  SlotId victim = kNoSlot;
  int64_t most = 0;
  for (auto it = slots.rbegin(); it != slots.rend(); ++it) {
    if (plan.Touched(*it)) continue;
    if (!order.ranks()) return *it;
    const int64_t rank = order.RankOf(view, *it);
    if (victim != kNoSlot && rank <= most) continue;
    victim = *it;
    most = rank;
  }
  return victim;
}

}  // namespace tactus::core
