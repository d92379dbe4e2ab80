// What a report shows of one run, gathered from its run file in one reading and in memory that does not grow with the
// run. Caller's thread.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results/obs/run_reader.h"
#include "results/report/time_bins.h"

namespace tactus::results {

// Missed objectives by objective and cause. Causes and classes beyond the first 32 are "other".
using Misses = std::map<std::string, std::map<std::string, int64_t>>;

// One that stands out: what `tactus explain` is to be asked about.
struct SlowRequest {
  int64_t number = -1;
  std::string id, slo_class;  // the client's id, cut to kMostIdShown
  DurationNs ttft_ns = -1, longest_gap_ns = -1, e2e_ns = -1;
};
inline constexpr size_t kMostSlow = 5, kMostIdShown = 40;

struct RunView {
  std::string path;
  std::string label;  // what sets it apart from the other runs of a report
  std::string group;  // the same without the load
  std::optional<double> load;
  RunFile file;  // about, result, numbers of rows

  // Of steps: their means are over time, not over steps.
  TimeBins prompt_tokens, decodes, kv_used, running, waiting, longest_gap_ms;
  // Of the time series.
  TimeBins in_flight, arrivals_per_s, ends_per_s, output_tokens_per_s;
  TimeBins ttft_p50_ms, ttft_p99_ms, gap_p50_ms, gap_p99_ms, gap_max_ms;
  // Of requests.
  std::map<std::string, Misses> misses;                      // by class; "" without a name
  std::vector<SlowRequest> last_first_tokens, longest_gaps;  // up to kMostSlow each, the worst first
  DurationNs least_tbt_ns = 0, most_tbt_ns = 0;              // TBT objectives that were stated; 0: none

  // A number of the result object, {"ttft_ms", "p99"} say; nothing where it is null or missing.
  std::optional<double> Value(const std::vector<const char*>& names) const;
};

// As ReadRunFile; label and group are left to LabelRuns.
Result<RunView> ViewRun(const std::string& path);

// Puts the runs in the order of the numbers in which they differ (rate 8, 16, 20), whatever the order of their files.
// Labels by the commands and options in which the runs differ, else by the files' names; the load from `rate` or
// `concurrency`, where the runs differ in it.
void LabelRuns(std::vector<RunView>* runs);

}  // namespace tactus::results
