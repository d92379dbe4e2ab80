// The `oracle`: the result that was reachable with all arrivals and output lengths known in advance. It is the best, by
// goodput, of all presets (with exact predictions) and of orders found by search: an explicit order of all requests,
// passed to the engine as priorities and improved by swapping two requests. A good reference to compare schedulers
// with; an upper bound for any schedule is reported with it (kept_bound.h).
// Deterministic from the simulation's seed, on any number of threads: proposals are made and judged in rounds of
// kProposals.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/oracle/kept_bound.h"
#include "sim/simulator/run_many.h"

namespace tactus::sim {

struct OracleOptions {
  std::vector<std::string> without;  // presets excluded from the start of the search
  int32_t swaps = 1000;
  int32_t threads = 1;
};

struct OracleProgress {
  int64_t runs = 0, total = 0;  // simulations
  double best_goodput = 0;      // requests/s; without objectives 0
  KeptBoundProgress bound;      // after all simulations; most_rounds is 0 before
};

struct OracleResult {
  RunResult run;     // of the best schedule
  std::string from;  // the origin of the best schedule
  std::vector<std::pair<std::string, std::optional<double>>>
      presets;  // goodput of each preset, requests/s; absent: cannot run
  int64_t swaps_tried = 0, swaps_kept = 0;
  // Upper bound on requests within objectives for any schedule (kept_bound.h); absent: unknown, `unbounded` has the
  // reason.
  std::optional<int64_t> most_kept;
  std::string unbounded;
};

// Preset names separated by commas; empty: none. kInvalidArgument, with the parameter `oracle-without`: an unknown
// preset, or no preset left.
Result<std::vector<std::string>> ParseOracleWithout(const std::string& names);

// `base`: its scheduler's limits and parameters are used, its preset and choices are not. `keep_going` may be null; if
// it returns false, the best so far is returned. Not ok: no preset can run (the first error), or kCancelled before the
// first run.
Result<OracleResult> RunOracle(const SimulationJob& base, const OracleOptions& options,
                               const std::function<bool(const OracleProgress&)>& keep_going = {});

}  // namespace tactus::sim
