// The result of a load test, as measured by the client, as a result object. Every latency is kept, so percentiles are
// exact.
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
  TimeNs due_ns = 0;  // arrival time in the workload
  TimeNs sent_ns = 0;
  TimeNs first_token_ns = 0;  // 0: no token came
  TimeNs last_token_ns = 0;
  TimeNs done_ns = 0;
  int64_t prompt_tokens = 0;  // as counted by the server, else as requested
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;
  std::vector<DurationNs> gaps_ns;  // between consecutive events that carried text
  Slo slo;                          // from the workload
  std::string slo_class;
};

struct ReportInput {
  std::vector<RequestRecord> records;
  double rate_asked_per_s = 0;  // 0: closed loop
  int64_t concurrency = 0;
  // For requests without objectives in the workload; not sent, used for the report.
  Slo slo;
  std::string slo_class;
  results::RunLength warmup, measure;  // which requests are measured, by arrival time; neither given: all
};

// Latencies count from the request's arrival time in the workload, so a client that falls behind hides nothing.
RunResult ResultOf(const ReportInput& input);

// Writes all requests and the time series of the load to a run file (null: none) and to `series` (null: none). Times
// count from the first arrival. Close() adds the file's result.
void AddRows(const ReportInput& input, results::RunFileWriter* file, results::KeptSeries* kept);

}  // namespace tactus::cli
