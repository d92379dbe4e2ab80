// What a load test's client saw, as the one result object. Every latency is kept, so percentiles are exact.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "results/obs/kept_series.h"
#include "results/obs/run_file.h"
#include "results/obs/run_window.h"
#include "tactus/request.h"
#include "tactus/run_result.h"

namespace tactus::cli {

struct RequestRecord {
  enum class Outcome : uint8_t { kPending, kCompleted, kFailed, kRejected };  // rejected: 429 or 503
  Outcome outcome = Outcome::kPending;
  TimeNs due_ns = 0;  // when the workload wanted it sent
  TimeNs sent_ns = 0;
  TimeNs first_token_ns = 0;  // 0: none came
  TimeNs last_token_ns = 0;
  TimeNs done_ns = 0;
  int64_t prompt_tokens = 0;  // as the server counted, else as asked for
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;
  std::vector<DurationNs> gaps_ns;  // between consecutive events that carried text
  Slo slo;                          // as the workload states them
  std::string slo_class;
};

struct ReportInput {
  std::vector<RequestRecord> records;
  double rate_asked_per_s = 0;  // 0: closed loop
  int64_t concurrency = 0;
  // Of requests for which the workload states none; scored here.
  Slo slo;
  std::string slo_class;
  results::RunLength warmup, measure;  // what counts, by when requests were due; neither given: everything
};

// Latencies count from the time the workload wanted the request sent: a client that falls behind hides nothing.
RunResult ResultOf(const ReportInput& input);

// The requests and the time series of the load, all of it, in a run file (null: none is written) and as what is kept of
// the series (null: nothing). Times count from the first that was due. Not the file's result: Close brings that.
void AddRows(const ReportInput& input, results::RunFileWriter* file, results::KeptSeries* kept);

}  // namespace tactus::cli
