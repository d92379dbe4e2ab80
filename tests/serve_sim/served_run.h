// A workload through the front door of `tactus serve`: its options from an argument list, the real engine, server and
// HTTP over the loopback, on a GatedClock with a ScriptedBackend.
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
  std::vector<std::string> answers;  // what went wrong with answers that the server had accepted
  int64_t refused = 0;
  std::string scheduler;  // as the start-up says it
};

// `args`: of `tactus serve`, MODEL included. `sim`: the simulation that is compared with; its step times, KV memory and
// closed loop are the server's too. `load`: how requests are written.
Result<ServedRun> Serve(const std::vector<std::string>& args, const sim::SimSetup& sim, cli::LoadOptions load);

}  // namespace tactus
