// In which order a plan's requests will start: from one end, or from both as the scheduler's order takes them
// (src/sched/order/dual_scan_order.h). Who feeds an engine whose queue holds less than the job submits them so, and
// what the plan shares is counted on it.
#pragma once

#include <cstdint>
#include <vector>

#include "batch/plan.h"

namespace tactus::batch {

// Positions of the plan. `kv_tokens`: of the device's KV memory; what runs at once holds no more on average, a prefix
// that a request shares with the one before it in the plan being held by that one. A request is taken to run for as
// many steps as it generates tokens: the time of its prompt is left out (ours).
std::vector<int32_t> StartOrder(const Plan& plan, int64_t kv_tokens);

}  // namespace tactus::batch
