// What a load test found, in the columns that people know (conventions: one result object for bench, sim and batch).
// Plain data in, JSON and a table out. Percentiles are exact: linear interpolation between the two nearest ranks.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/units.h"

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
};

struct ReportInput {
  std::vector<RequestRecord> records;
  DurationNs duration_ns = 0;   // first send to last end
  double rate_asked_per_s = 0;  // 0: closed loop
  int64_t concurrency = 0;
  Slo slo;  // scored here; 0: none
};

nlohmann::ordered_json ReportJson(const ReportInput& input);
std::string ReportTable(const nlohmann::ordered_json& report);

}  // namespace tactus::cli
