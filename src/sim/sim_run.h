// A simulation from its set-up to its report: what `tactus sim` and Python's simulate() both do. No output; the clock,
// which only times the work itself, is the caller's.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "sim/oracle.h"
#include "sim/sim_options.h"
#include "tactus/run_result.h"

namespace tactus::sim {

// Asked and told now and then, on the thread that runs it. Each may be null.
struct SimWatch {
  std::function<void(const std::string& scheduler)> begun;
  std::function<bool(const SimProgress&)> run;        // of one simulation; false: stop, what was done counts
  std::function<bool(const OracleProgress&)> search;  // of the oracle's many
};

// The result, and what it is the result of.
struct SimReport {
  RunResult run;
  Json json;
  std::string text;      // for people, beside the result's table; may be empty
  bool finished = true;  // every request has ended
  SimProgress progress;  // of one simulation
};

// kCancelled: a search was stopped. One simulation that was stopped is a report that is not finished.
Result<SimReport> RunSetup(const SimOptions& options, SimSetup* setup, Clock& clock, const SimWatch& watch);

// A run that has completed nothing says nothing of a scheduler: why not.
Status CheckCompleted(const RunResult& run);

}  // namespace tactus::sim
