// Runs a case of Vidur's in our simulator (the step loop, scheduler and KV cache that serve) and writes the same logs.
#pragma once

#include "core/sched/scheduler.h"
#include "vidur/vidur_case.h"
#include "vidur/vidur_tables.h"

namespace tactus::vidur {

// kStock: a preset with its parameters and its own composition. kVidur: with the composition that has their remaining
// rules.
enum class Choices : uint8_t { kStock, kVidur };

struct EngineRun {
  Log run;
  std::string scheduler;  // as it describes itself
  uint64_t plan_hash = 0;
};
// An error: the scheduler's refusal, or an engine that came to a stop.
Result<EngineRun> RunEngine(const Rules& rules, Choices choices, const std::vector<TraceRequest>& requests,
                            const Tables& tables);

}  // namespace tactus::vidur
