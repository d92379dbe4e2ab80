// Several simulations side by side: threads run different ones, so that the results are the same on any number of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/simulator.h"

namespace tactus::sim {

struct SimulationJob {
  SimulationConfig config;  // callbacks in it are called on the job's thread
  std::function<Result<std::unique_ptr<WorkloadStream>>()> open;
};

// Calls work(0) to work(count - 1), each once, on up to `threads` threads, the caller's among them; returns when all
// have returned. In order where it is one thread.
void ForEachOnThreads(size_t count, int32_t threads, const std::function<void(size_t)>& work);

// One result or error per job, in their order. `threads` >= 1. `keep_going` (may be null) is asked now
// and then on every thread; once it says no, jobs end early with what they have and those not begun are kCancelled.
std::vector<Result<RunResult>> RunSimulations(std::span<const SimulationJob> jobs, int32_t threads,
                                              const std::function<bool()>& keep_going = {});

}  // namespace tactus::sim
