// Many simulations for one question: the options of `tactus sim` with some of them varied, each made a run by the way
// that `tactus sim` takes. Main thread, except RunCase.
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

// What a command takes that varies the options of `tactus sim`.
struct SimManyOptions : SimCommandOptions {
  std::vector<std::string> vary;
  int64_t most_runs = 10'000;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Runs");
    v.Field("vary", vary,
            {.help = "FLAG=VALUES: an option and what it is set to, one after the other: scheduler=vllm,sarathi-serve; "
                     "numbers also as LOW:HIGH:STEP or LOW:HIGH:xFACTOR. Values with commas are separated by |. May be "
                     "repeated: every combination is run"});
    v.Field("most-runs", most_runs,
            {.unit = "runs", .min = 1, .max = 1e9, .help = "more than these are refused before any begins"});
    SimCommandOptions::VisitFields(v);
  }
};

// A flag of the options and the values that it takes in turn.
struct VariedFlag {
  std::string name;  // "token-budget", also where it was given by an alias
  std::vector<std::string> values;
};

// One configuration: the options, and for each varied flag its value.
struct SimCase {
  sim::SimOptions options;
  std::vector<std::string> values;
};

// "scheduler=a,b", "rate=1:8:1", "token-budget=256:4096:x2"; every value is one that its flag takes. kInvalidArgument
// names what is wrong.
Result<std::vector<VariedFlag>> ParseVaried(const sim::SimOptions& base, const std::vector<std::string>& texts);
// Every combination, the last flag's values changing fastest, `runs_each` runs of each. kInvalidArgument: more runs
// than `most_runs`, with their number.
Result<std::vector<SimCase>> MakeCases(const sim::SimOptions& base, const std::vector<VariedFlag>& varied,
                                       int64_t runs_each, int64_t most_runs);
// "scheduler=vllm rate=4"; "" where nothing is varied.
std::string CaseText(const std::vector<VariedFlag>& varied, const SimCase& of);

// What runs are of beside what is varied, and `beyond` it: 16 digits of a hash. It is another one of another version of
// the program, and where a file that an option or a value names has other contents.
std::string BaseOf(const sim::SimOptions& base, const std::vector<VariedFlag>& varied, const std::string& beyond);

// kInvalidArgument: options that are for one run alone, such as a file that each of many would write anew.
Status CheckForMany(const SimCommandOptions& options);
// The threads that --threads asks for.
int32_t ThreadsOf(const SimCommandOptions& options);

// One run, as `tactus sim` would make it. Any thread. `keep_going` as SimWatch::run; a run that it stops is not
// finished.
Result<sim::SimReport> RunCase(const sim::SimOptions& options,
                               const std::function<bool(const sim::SimProgress&)>& keep_going);

// Wall-clock seconds that a run takes, by its first half second or so, which is thrown away. Absent: Ctrl-C, no run, or
// no request of it ended in ten seconds.
std::optional<double> RunTimeS(const sim::SimOptions& options);
// ", about 12 s if all are like the first"
std::string AboutText(double seconds);

// The results of one configuration, a run per seed.
struct RunSet {
  std::string name;
  std::vector<Json> runs;

  // Of all runs; absent: one does not know it, or there is none.
  std::optional<std::vector<double>> Values(const results::RunMetric& metric) const;
  // "seed" of each; absent as Values.
  std::optional<std::vector<double>> Seeds() const;
};
// `seeds` runs of each of `configurations`, from their seed on. kCancelled: Ctrl-C; another status: the first that a
// run had.
Result<std::vector<RunSet>> RunSeeds(const std::vector<std::pair<std::string, sim::SimOptions>>& configurations,
                                     int64_t seeds, int32_t threads);
// {"seeds": [...], "mean": {"p99(tbt)": {mean, low, high}, ...}, "runs": [...]}
Json RunSetJson(const RunSet& set);
// The means and intervals of that, a metric a line.
std::string RunSetTable(const Json& set);

}  // namespace tactus::cli
