// Shared by the budgets that keep --tbt-slo.
#pragma once

#include <algorithm>

#include "core/sched/policy.h"

namespace tactus::core {

inline constexpr Knob<double> kHeadroom{"tbt-headroom",
                                        0.9,
                                        {.min = 0.01,
                                         .max = 1,
                                         .help = "budgets tbt-slo and profile: the share of --tbt-slo that a step's "
                                                 "predicted time may take when there are pipeline stages"}};

// The default --tbt-slo: the time per token at 240 words a minute.
inline constexpr DurationNs kReadingSpeedNs = 187'500'000;

// With pipeline stages a step also waits for others: it may not use the whole objective.
inline double ShareOfObjective(const SchedulerLimits& limits) {
  return limits.pipeline_steps > 1 ? limits.policy[kHeadroom] : 1.0;
}

// Step sizes are multiples of this: the fewest whole tiles that are at least 8 tokens.
inline int64_t GranuleOf(const StepTimeModel& model) {
  constexpr int64_t kLeast = 8;
  const int64_t tile = std::max(1, model.tile_tokens());
  return (kLeast + tile - 1) / tile * tile;
}

}  // namespace tactus::core
