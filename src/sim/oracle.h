// The `oracle`: what could have been reached with every arrival and every output length known. The best, by goodput, of
// all presets (predictors answer the truth) and of orders found by search: an explicit order of all requests, given to
// the engine as priorities, improved by swaps of two requests. A good result to compare schedulers with; how many
// requests any schedule could keep at most is proven beside it (kept_bound.h).
//
// Deterministic from the simulation's seed, on any number of threads: proposals are made and judged in rounds of
// kProposals.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/kept_bound.h"
#include "sim/run_many.h"

namespace tactus::sim {

struct OracleOptions {
  std::vector<std::string> without;  // presets that it does not begin with
  int32_t swaps = 1000;
  int32_t threads = 1;
};

struct OracleProgress {
  int64_t runs = 0, total = 0;  // simulations
  double best_goodput = 0;      // requests/s; without objectives 0
  KeptBoundProgress bound;      // after all simulations; most_rounds is 0 before
};

struct OracleResult {
  RunResult run;     // of the best
  std::string from;  // where it came from
  std::vector<std::pair<std::string, std::optional<double>>>
      presets;  // what each reached, requests/s; none: cannot run
  int64_t swaps_tried = 0, swaps_kept = 0;
  // Requests that any schedule keeps at most (kept_bound.h); none: not known, and why not.
  std::optional<int64_t> most_kept;
  std::string unbounded;
};

// By comma; empty: none. kInvalidArgument, with the parameter `oracle-without`: no preset has the name, or none is
// left.
Result<std::vector<std::string>> ParseOracleWithout(const std::string& names);

// `base`: its scheduler's limits and parameters count, its preset and choices do not. `keep_going` may be null; when it
// says no, the best so far is the answer. Not ok: no preset can run at all (the first complaint), or kCancelled before
// the first run.
Result<OracleResult> RunOracle(const SimulationJob& base, const OracleOptions& options,
                               const std::function<bool(const OracleProgress&)>& keep_going = {});

}  // namespace tactus::sim
