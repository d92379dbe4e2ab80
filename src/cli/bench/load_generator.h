// Sends a workload to an OpenAI endpoint: open loop (requests are sent at their arrival times, regardless of the
// server) or closed loop (a fixed number in flight). One thread, any number of streams (http/client.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/bench/serving_report.h"
#include "http/client.h"
#include "sim/workload/workload.h"

namespace tactus::cli {

struct LoadOptions {
  std::string url;
  std::string model;
  std::string api_key;
  std::string endpoint = "completions";  // or "chat"
  std::string prompt_format = "ids";     // or "text"; chat is always text
  int64_t concurrency = 0;               // closed loop; 0: open
  int64_t vocab_size = 30000;            // prompt ids are drawn from [vocab_size / 10, vocab_size)
  int64_t warmup = 0;                    // requests before the measured ones, not measured
  bool ignore_eos = true;
  double temperature = 0;
  bool send_slo = false;  // objectives and class, which only some servers accept
  // For requests without objectives in the workload.
  Slo slo;
  std::string slo_class;
  uint64_t seed = 0;
  DurationNs timeout_ns = 600 * kSecond;  // per request; 0: no limit
};

struct LoadProgress {
  int64_t total = 0, sent = 0, done = 0, failed = 0, rejected = 0, tokens = 0;
  TimeNs elapsed_ns = 0;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // measured requests that were sent
  DurationNs duration_ns = 0;
  bool interrupted = false;
  std::map<std::string, int64_t> failures, rejections;  // message -> number of measured requests that ended with it
  std::string warmup_error;                             // the first one; empty: none
};

// "3 of 10 requests failed: 2 x HTTP 500: no room; 1 x connection reset", most frequent reasons first; empty for none.
std::string ReasonsText(const std::map<std::string, int64_t>& reasons, const std::string& what, int64_t of);

// `progress` is called five times a second and returns false to stop early: completed requests are kept, the rest is
// cancelled.
Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<sim::WorkloadRequest>& workload, Clock& clock,
                           const std::function<bool(const LoadProgress&)>& progress);

// The request's JSON body; `index` and the seed determine the text; equal prefixes get equal tokens.
std::string RequestBody(const LoadOptions& options, const sim::WorkloadRequest& request, int64_t index);

}  // namespace tactus::cli
