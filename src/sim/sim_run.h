// Runs a simulation from set-up to report, for `tactus sim` and Python's simulate(). No output; the caller passes the
// clock, which only times the work itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "sim/oracle/oracle.h"
#include "sim/sim_options.h"
#include "tactus/run_result.h"

namespace tactus::sim {

// Progress callbacks, called regularly on the running thread. Each may be null.
struct SimWatch {
  std::function<void(const std::string& scheduler)> begun;
  std::function<bool(const SimProgress&)> run;        // of one simulation; false: stop, keep the partial result
  std::function<bool(const OracleProgress&)> search;  // of the oracle's simulations
};

// The result, and the run it describes.
struct SimReport {
  RunResult run;
  Json json;
  std::string text;      // for people, besides the result's table; may be empty
  bool finished = true;  // every request has ended
  SimProgress progress;  // of one simulation
};

// kCancelled: a search was stopped. A single simulation that was stopped returns an unfinished report.
Result<SimReport> RunSetup(const SimOptions& options, SimSetup* setup, Clock& clock, const SimWatch& watch);

// An error with the reason if no request completed: such a run does not measure a scheduler.
Status CheckCompleted(const RunResult& run);

}  // namespace tactus::sim
