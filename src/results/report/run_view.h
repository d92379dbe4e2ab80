// The data that a report shows of one run, collected in one reading of its run file; memory does not grow with the run.
// Caller's thread.
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

// A slow request, as input for `tactus explain`.
struct SlowRequest {
  int64_t number = -1;
  std::string id, slo_class;  // the client's id, cut to kMostIdShown
  DurationNs ttft_ns = -1, longest_gap_ns = -1, e2e_ns = -1;
};
inline constexpr size_t kMostSlow = 5, kMostIdShown = 40;

struct RunView {
  std::string path;
  std::string label;  // distinguishes it from the other runs of a report
  std::string group;  // the label without the load
  std::optional<double> load;
  RunFile file;  // about, result, numbers of rows

  // From steps: means over time, not over steps.
  TimeBins prompt_tokens, decodes, kv_used, running, waiting, longest_gap_ms;
  // From the time series.
  TimeBins in_flight, arrivals_per_s, ends_per_s, output_tokens_per_s;
  TimeBins ttft_p50_ms, ttft_p99_ms, gap_p50_ms, gap_p99_ms, gap_max_ms;
  // From requests.
  std::map<std::string, Misses> misses;                      // by class; "" without a name
  std::vector<SlowRequest> last_first_tokens, longest_gaps;  // up to kMostSlow each, the worst first
  DurationNs least_tbt_ns = 0, most_tbt_ns = 0;              // range of TBT objectives; 0: none

  // A number of the result object by path, such as {"ttft_ms", "p99"}; absent if null or missing.
  std::optional<double> Value(const std::vector<const char*>& names) const;
};

// Errors as in ReadRunFile; LabelRuns sets label and group.
Result<RunView> ViewRun(const std::string& path);

// Sorts the runs by the numbers in which they differ (rate 8, 16, 20), whatever the order of their files. Labels them
// by differing commands and options, otherwise by file name; the load is `rate` or `concurrency`, if the runs differ in
// it.
void LabelRuns(std::vector<RunView>* runs);

}  // namespace tactus::results
