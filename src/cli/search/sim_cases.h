// Runs many simulations: the options of `tactus sim`, with some of them varied, each run as in `tactus sim`. Main
// thread, except RunCase.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cli/options/command_options.h"
#include "results/obs/run_metric.h"
#include "sim/sim_run.h"

namespace tactus::cli {

// Options of commands that vary the options of `tactus sim`.
struct SimManyOptions : SimCommandOptions {
  std::vector<std::string> vary;
  int64_t most_runs = 10'000;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Runs");
    v.Field("vary", vary,
            {.help = "FLAG=VALUES: an option and the values to try: scheduler=vllm,sarathi-serve; numbers also as "
                     "LOW:HIGH:STEP or LOW:HIGH:xFACTOR. Separate values that contain commas by |. May be repeated: "
                     "every combination is run"});
    v.Field("most-runs", most_runs,
            {.unit = "runs",
             .min = 1,
             .max = 1e9,
             .help = "limit on the number of runs; a larger number is refused before the first begins"});
    SimCommandOptions::VisitFields(v);
  }
};

// A varied flag and its values.
struct VariedFlag {
  std::string name;  // "token-budget", also if given by an alias
  std::vector<std::string> values;
};

// One configuration: the options, and the value of each varied flag.
struct SimCase {
  sim::SimOptions options;
  std::vector<std::string> values;
};

// Parses "scheduler=a,b", "rate=1:8:1", "token-budget=256:4096:x2"; every value must be valid for its flag.
// kInvalidArgument names the error.
Result<std::vector<VariedFlag>> ParseVaried(const sim::SimOptions& base, const std::vector<std::string>& texts);
// Every combination, with the last flag's values changing fastest, `runs_each` runs each. kInvalidArgument: more runs
// than `most_runs`; the message has their number.
Result<std::vector<SimCase>> MakeCases(const sim::SimOptions& base, const std::vector<VariedFlag>& varied,
                                       int64_t runs_each, int64_t most_runs);
// "scheduler=vllm rate=4"; empty if nothing is varied.
std::string CaseText(const std::vector<VariedFlag>& varied, const SimCase& of);

// A 16-digit hash of everything that runs depend on besides the varied values and the seed: the other options,
// `beyond`, the program's version, and the contents of files that options or values name.
std::string BaseOf(const sim::SimOptions& base, const std::vector<VariedFlag>& varied, const std::string& beyond);

// kInvalidArgument: an option that fits a single run only, such as a file that every run would overwrite.
Status CheckForMany(const SimCommandOptions& options);
// The number of threads that --threads sets.
int32_t ThreadsOf(const SimCommandOptions& options);

// One run, as in `tactus sim`. Any thread. `keep_going`: see SimWatch::run; a run that it stops is not finished.
Result<sim::SimReport> RunCase(const sim::SimOptions& options,
                               const std::function<bool(const sim::SimProgress&)>& keep_going);

// Estimated wall-clock seconds of a run, from its first half second or so, whose result is discarded. Absent: Ctrl-C,
// an invalid run, or no request ended within ten seconds.
std::optional<double> RunTimeS(const sim::SimOptions& options);
// ", about 12 s if all are like the first"
std::string AboutText(double seconds);

// The results of one configuration, one run per seed.
struct RunSet {
  std::string name;
  std::vector<Json> runs;

  // The metric's value in each run; absent if a run lacks it, or there is no run.
  std::optional<std::vector<double>> Values(const results::RunMetric& metric) const;
  // The "seed" of each run; absent as in Values.
  std::optional<std::vector<double>> Seeds() const;
};
// `seeds` runs of each of `configurations`, with consecutive seeds. kCancelled: Ctrl-C; another status: the first error
// of a run.
Result<std::vector<RunSet>> RunSeeds(const std::vector<std::pair<std::string, sim::SimOptions>>& configurations,
                                     int64_t seeds, int32_t threads);
// {"seeds": [...], "mean": {"p99(tbt)": {mean, low, high}, ...}, "runs": [...]}
Json RunSetJson(const RunSet& set);
// The means and intervals of that JSON, one line per metric.
std::string RunSetTable(const Json& set);

}  // namespace tactus::cli
