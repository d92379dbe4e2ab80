// Several simulations side by side: threads run different ones, so that the results are the same on any number of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/simulator.h"

namespace tactus {

struct SimulationJob {
  SimulationConfig config;  // callbacks in it are called on the job's thread
  std::function<Result<std::unique_ptr<WorkloadStream>>()> open;
};

// One result or error per job, in their order. `threads` >= 1. `keep_going` (may be null) is asked now
// and then on every thread; once it says no, jobs end early with what they have and those not begun are kCancelled.
std::vector<Result<RunResult>> RunSimulations(std::span<const SimulationJob> jobs, int32_t threads,
                                              const std::function<bool()>& keep_going = {});

}  // namespace tactus
