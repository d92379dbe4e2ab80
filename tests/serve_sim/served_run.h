// Runs a workload through `tactus serve`: options from an argument list, the real engine, server and HTTP over the
// loopback, on a GatedClock with a ScriptedBackend.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/load_generator.h"
#include "sim/sim_options.h"
#include "tactus/run_result.h"

namespace tactus {

struct ServedRun {
  RunResult result;
  std::vector<std::string> plans;    // PlanText of every step
  std::vector<std::string> answers;  // errors in answers to accepted requests
  int64_t refused = 0;
  std::string scheduler;  // the scheduler's text in the start-up log
};

// `args`: arguments of `tactus serve`, including MODEL. `sim`: the simulation to compare with; the server uses its step
// times, KV memory and closed loop. `load`: the form of requests.
Result<ServedRun> Serve(const std::vector<std::string>& args, const sim::SimSetup& sim, cli::LoadOptions load);

}  // namespace tactus
