#include "cli/serving_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tactus::cli {
namespace {

RequestRecord Record(TimeNs due, TimeNs first, std::vector<DurationNs> gaps, int64_t prompt) {
  RequestRecord r;
  r.outcome = RequestRecord::Outcome::kCompleted;
  r.due_ns = r.sent_ns = due;
  r.first_token_ns = first;
  r.last_token_ns = first;
  for (DurationNs gap : gaps) r.last_token_ns += gap;
  r.done_ns = r.last_token_ns;
  r.gaps_ns = std::move(gaps);
  r.output_tokens = static_cast<int64_t>(r.gaps_ns.size()) + 1;
  r.prompt_tokens = prompt;
  return r;
}

TEST(ServingReport, CountsEveryGapAndTakesLatencyFromWhenARequestWasDue) {
  ReportInput input;
  input.records.push_back(Record(kSecond, kSecond + 100 * kMillisecond, {10 * kMillisecond, 30 * kMillisecond}, 50));
  input.records.push_back(Record(2 * kSecond, 2 * kSecond + 300 * kMillisecond, {20 * kMillisecond}, 100));
  input.records[1].sent_ns += 200 * kMillisecond;  // the client was late; the server is not to look better for it
  input.records.push_back({.outcome = RequestRecord::Outcome::kRejected, .due_ns = 1, .sent_ns = 1, .done_ns = 2});
  input.records.push_back({.outcome = RequestRecord::Outcome::kFailed, .due_ns = 1, .sent_ns = 1, .done_ns = 2});
  input.duration_ns = 2 * kSecond;
  input.slo.tbt_ns = 25 * kMillisecond;
  const auto report = ReportJson(input);
  EXPECT_EQ(report["requests"]["completed"], 2);
  EXPECT_EQ(report["requests"]["failed"], 1);
  EXPECT_EQ(report["requests"]["rejected"], 1);
  EXPECT_DOUBLE_EQ(report["request_throughput"], 1.0);
  EXPECT_DOUBLE_EQ(report["output_token_throughput"], 2.5);
  EXPECT_DOUBLE_EQ(report["ttft_ms"]["p50"], 200.0);
  EXPECT_DOUBLE_EQ(report["ttft_ms"]["max"], 300.0);
  EXPECT_DOUBLE_EQ(report["tbt_ms"]["mean"], 20.0);
  EXPECT_DOUBLE_EQ(report["tbt_ms"]["p50"], 20.0);
  EXPECT_DOUBLE_EQ(report["tpot_ms"]["max"], 20.0);
  EXPECT_DOUBLE_EQ(report["normalized_ttft_ms"]["max"], 3.0);
  EXPECT_DOUBLE_EQ(report["goodput"], 0.5);          // only the second kept every gap
  EXPECT_DOUBLE_EQ(report["slo_attainment"], 0.25);  // of all four that ended
}

TEST(ServingReport, AFigureThatIsNotKnownIsNull) {
  const auto report = ReportJson({});
  for (const char* key : {"ttft_ms", "tbt_ms", "goodput", "slo_attainment", "request_throughput", "preemptions"}) {
    EXPECT_TRUE(report[key].is_null()) << key;
  }
  EXPECT_NE(ReportTable(report).find("TTFT (ms)"), std::string::npos);
}

}  // namespace
}  // namespace tactus::cli
