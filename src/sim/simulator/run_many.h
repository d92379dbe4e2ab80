// Runs several simulations in parallel, each on one thread, so that results do not depend on the number of threads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/simulator/simulator.h"

namespace tactus::sim {

struct SimulationJob {
  SimulationConfig config;  // its callbacks run on the job's thread
  std::function<Result<std::unique_ptr<WorkloadStream>>()> open;
};

// Calls work(0) to work(count - 1) once each, on up to `threads` threads including the caller's; returns when all have
// returned. In order with one thread.
void ForEachOnThreads(size_t count, int32_t threads, const std::function<void(size_t)>& work);

// One result or error per job, in the jobs' order. `threads` >= 1. `keep_going` (may be null) is called regularly on
// every thread; once it returns false, running jobs end early with partial results and the others are kCancelled.
std::vector<Result<RunResult>> RunSimulations(std::span<const SimulationJob> jobs, int32_t threads,
                                              const std::function<bool()>& keep_going = {});

}  // namespace tactus::sim
