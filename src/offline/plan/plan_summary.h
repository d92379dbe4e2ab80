// What a plan predicts: the work, how much of it is shared, and lower bounds on the job's time. A run reports how close
// it came to both bounds.
#pragma once

#include <cstdint>

#include "base/overlap_fit.h"
#include "offline/plan/plan.h"
#include "tactus/run_result.h"

namespace tactus::offline {

struct PlanSummary {
  int32_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // known or expected
  double compute_s = 0;       // without sharing
  double memory_s = 0;
  double optimal_sharing = 0;  // share of prompt tokens
  double planned_sharing = 0;  // in the planned order, with the given cache
  double density = 0;          // of the whole job, with optimal sharing
  double planned_compute_s = 0;
  double bound_s = 0;            // unreachable: optimal sharing, perfect overlap
  double practical_bound_s = 0;  // optimal sharing, the device's overlap
  double sequential_s = 0;       // optimal sharing, no overlap
};

// `kv_tokens`: size of the device's KV memory, which is also the cache.
PlanSummary Summarize(const Plan& plan, const OverlapFit& overlap, int64_t kv_tokens);

// The plan's part of a run's result. The run took `run_s` seconds for `work_share` of the work; 0: nothing was done.
// Not `rated`: the plan's costs are not seconds of this device, so no bounds are reported.
PlanFigures FiguresOf(const PlanSummary& summary, bool rated, double work_share, double run_s);

}  // namespace tactus::offline
