// Runs a Vidur case in our simulator (with the serving step loop, scheduler and KV cache) and writes the same logs.
#pragma once

#include "core/sched/scheduler.h"
#include "vidur/vidur_case.h"
#include "vidur/vidur_tables.h"

namespace tactus::vidur {

// kStock: a preset with its own composition. kVidur: the preset with the composition of vidur_policies.h, which has
// Vidur's remaining rules.
enum class Choices : uint8_t { kStock, kVidur };

struct EngineRun {
  Log run;
  std::string scheduler;  // Scheduler::Describe
  uint64_t plan_hash = 0;
};
// An error: the scheduler refused the configuration, or the engine stalled.
Result<EngineRun> RunEngine(const Rules& rules, Choices choices, const std::vector<TraceRequest>& requests,
                            const Tables& tables);

}  // namespace tactus::vidur
