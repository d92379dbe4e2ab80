#include "cli/bench/serving_report.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "results/obs/run_result.h"

namespace tactus::cli {
namespace {

SortedJson ReportJson(const ReportInput& input) {
  return SortedJson::parse(ToJson(ResultOf(input)));
}

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

TEST(ServingReport, CountsEveryGapAndLatencyFromTheArrivalTime) {
  ReportInput input;
  input.records.push_back(Record(kSecond, kSecond + 100 * kMillisecond, {10 * kMillisecond, 30 * kMillisecond}, 50));
  input.records.push_back(Record(2 * kSecond, 2 * kSecond + 300 * kMillisecond, {20 * kMillisecond}, 100));
  input.records[1].sent_ns += 200 * kMillisecond;  // the client was late, which must not improve the server's latency
  for (const auto outcome : {RequestRecord::Outcome::kRejected, RequestRecord::Outcome::kFailed}) {
    input.records.push_back({.outcome = outcome, .due_ns = kSecond, .sent_ns = kSecond, .done_ns = kSecond + 2});
  }
  input.slo.tbt_ns = 25 * kMillisecond;
  const auto report = ReportJson(input);
  EXPECT_EQ(report["requests"]["completed"], 2);
  EXPECT_EQ(report["requests"]["failed"], 1);
  EXPECT_EQ(report["requests"]["rejected"], 1);
  EXPECT_DOUBLE_EQ(report["duration_s"], 1.32);  // from the first arrival to the last end
  EXPECT_DOUBLE_EQ(report["request_throughput"], 2 / 1.32);
  EXPECT_DOUBLE_EQ(report["output_token_throughput"], 5 / 1.32);
  EXPECT_DOUBLE_EQ(report["ttft_ms"]["p50"], 100.0);
  EXPECT_DOUBLE_EQ(report["ttft_ms"]["max"], 300.0);
  EXPECT_DOUBLE_EQ(report["tbt_ms"]["mean"], 20.0);
  EXPECT_DOUBLE_EQ(report["tbt_ms"]["p50"], 20.0);
  EXPECT_DOUBLE_EQ(report["tpot_ms"]["max"], 20.0);
  EXPECT_DOUBLE_EQ(report["normalized_ttft_ms"]["max"], 3.0);
  EXPECT_DOUBLE_EQ(report["goodput"], 1 / 1.32);     // only the second met every gap
  EXPECT_DOUBLE_EQ(report["slo_attainment"], 0.25);  // one of the four that ended
}

// Records in any order. Between 2 s and 4 s the requests of 2 s and 3 s arrived and that of 1 s ended.
TEST(ServingReport, AMeasuredPartSelectsRequestsByArrivalTime) {
  ReportInput input;
  for (const TimeNs due : {5, 3, 1, 2, 4}) {
    input.records.push_back(Record(due * kSecond, due * kSecond + due * kMillisecond, {2 * kSecond}, 10 * due));
  }
  input.records.push_back({.outcome = RequestRecord::Outcome::kRejected, .due_ns = kSecond, .sent_ns = kSecond});
  input.warmup.ns = kSecond;
  input.measure.ns = 2 * kSecond;
  input.records[0].gaps_ns = {10 * kSecond};
  input.slo_class = "all";
  const auto report = ReportJson(input);
  ASSERT_TRUE(report["classes"]["all"]["tbt_ms"].is_object()) << "a load test knows the request of each gap";
  EXPECT_DOUBLE_EQ(report["classes"]["all"]["tbt_ms"]["max"], 2000) << "the gap of 10 s ended later";
  EXPECT_DOUBLE_EQ(report["duration_s"], 2);
  EXPECT_DOUBLE_EQ(report["measured_from_s"], 1);
  EXPECT_EQ(report["requests"]["completed"], 2);
  EXPECT_EQ(report["requests"]["rejected"], 0) << "it arrived in the warm-up";
  EXPECT_EQ(report["requests"]["unfinished"], 0);
  EXPECT_DOUBLE_EQ(report["ttft_ms"]["max"], 3);
  EXPECT_DOUBLE_EQ(report["input_token_throughput"], 5);
}

// The window is from 1 s to 2 s after the first arrival: of three gaps the second and the third end in it.
TEST(ServingReport, AGapIsMeasuredWhereItEnds) {
  ReportInput input;
  input.records.push_back(
      Record(kSecond, kSecond + 1, {600 * kMillisecond, 700 * kMillisecond, 500 * kMillisecond}, 1));
  input.records.push_back(Record(3 * kSecond, 3 * kSecond + 1, {}, 1));  // the last arrival ends the measured part
  input.warmup.ns = kSecond;
  input.measure.ns = kSecond;
  input.slo_class = "all";
  const auto report = ReportJson(input);
  for (const auto& part : {report, report["classes"]["all"]}) {
    ASSERT_TRUE(part["tbt_ms"].is_object()) << report;
    EXPECT_DOUBLE_EQ(part["tbt_ms"]["mean"], 600);
    EXPECT_DOUBLE_EQ(part["tbt_ms"]["max"], 700);
  }
}

TEST(ServingReport, AchievedRateUsesTheSendingTime) {
  ReportInput input;
  for (const TimeNs due : {kSecond, 3 * kSecond, 2 * kSecond}) input.records.push_back(Record(due, due + 1, {}, 1));
  input.records.push_back({.outcome = RequestRecord::Outcome::kFailed, .due_ns = 9 * kSecond, .done_ns = 9 * kSecond});
  EXPECT_DOUBLE_EQ(ReportJson(input)["request_rate_achieved"], 1.0);  // two after the first, within two seconds
}

TEST(ServingReport, PercentilesUseTheNearestRank) {
  ReportInput input;
  for (int i = 1; i <= 11; ++i) input.records.push_back(Record(kSecond, kSecond + i * 10 * kMillisecond, {}, 10));
  const auto ttft = ReportJson(input)["ttft_ms"];  // 10, 20, ... 110 ms
  EXPECT_DOUBLE_EQ(ttft["mean"], 60);
  EXPECT_DOUBLE_EQ(ttft["p50"], 60);
  EXPECT_DOUBLE_EQ(ttft["p90"], 100);
  EXPECT_DOUBLE_EQ(ttft["p95"], 110);
  EXPECT_DOUBLE_EQ(ttft["p99"], 110);
  EXPECT_DOUBLE_EQ(ttft["max"], 110);
}

TEST(ServingReport, AnObjectiveMetExactlyCountsAsMet) {
  const auto kept = [](const Slo& slo) {
    ReportInput input;
    input.records.push_back(Record(kSecond, kSecond + 100 * kMillisecond, {10 * kMillisecond, 30 * kMillisecond}, 50));
    input.slo = slo;
    return ReportJson(input)["slo_attainment"].get<double>();
  };
  EXPECT_EQ(kept({.ttft_ns = 100 * kMillisecond}), 1);
  EXPECT_EQ(kept({.ttft_ns = 100 * kMillisecond - 1}), 0);
  EXPECT_EQ(kept({.tbt_ns = 30 * kMillisecond}), 1);
  EXPECT_EQ(kept({.tbt_ns = 30 * kMillisecond - 1}), 0);
  EXPECT_EQ(kept({.jct_ns = 140 * kMillisecond}), 1);
  EXPECT_EQ(kept({.jct_ns = 140 * kMillisecond - 1}), 0);
  // Without a first token no objective can be met.
  ReportInput silent;
  silent.records.push_back({.outcome = RequestRecord::Outcome::kCompleted, .due_ns = 1, .sent_ns = 1, .done_ns = 2});
  silent.slo.ttft_ns = kSecond;
  EXPECT_EQ(ReportJson(silent)["slo_attainment"], 0.0);
  EXPECT_TRUE(ReportJson(silent)["ttft_ms"].is_null());
  EXPECT_DOUBLE_EQ(ReportJson(silent)["e2e_ms"]["max"], 1e-6);
}

TEST(ServingReport, RequestsAreScoredByTheirOwnObjectives) {
  ReportInput input;
  for (const char* name : {"chat", "chat", "", ""}) {
    RequestRecord r =
        Record(kSecond, kSecond + 100 * kMillisecond, {10 * kMillisecond, 30 * kMillisecond, 10 * kMillisecond}, 50);
    r.slo_class = name;
    if (r.slo_class == "chat") r.slo.tbt_ns = 20 * kMillisecond;
    input.records.push_back(r);
  }
  input.records[0].slo.tbt_ns = 30 * kMillisecond;
  input.records[3].outcome = RequestRecord::Outcome::kRejected;
  input.slo.ttft_ns = 100 * kMillisecond;
  input.slo_class = "other";
  const auto report = ReportJson(input);
  const auto &chat = report["classes"]["chat"], &other = report["classes"]["other"];
  EXPECT_EQ(chat["kept"], 1);
  EXPECT_EQ(chat["tbt_attainment"], 0.5);
  EXPECT_TRUE(chat["ttft_attainment"].is_null()) << "the options' objectives apply to requests without any";
  EXPECT_DOUBLE_EQ(chat["step_attainment"], 5.0 / 6);
  EXPECT_DOUBLE_EQ(chat["longest_gap_ms"]["max"], 30);
  ASSERT_TRUE(chat["tbt_ms"].is_object()) << "a load test knows the request of each gap";
  EXPECT_DOUBLE_EQ(chat["tbt_ms"]["p50"], 10) << "every gap of the class: 10, 30, 10, 10, 30, 10 ms";
  EXPECT_DOUBLE_EQ(chat["tbt_ms"]["mean"], 100.0 / 6);
  EXPECT_EQ(other["ttft_attainment"], 0.5);
  EXPECT_EQ(other["rejected"], 1);
  EXPECT_DOUBLE_EQ(other["e2e_ms"]["mean"], 150);
}

TEST(ServingReport, RatesCountTokensAndTurns) {
  ReportInput input;
  input.records.push_back(Record(kSecond, 2 * kSecond, {}, 50));
  input.records.push_back(Record(3 * kSecond, 4 * kSecond, {kSecond}, 70));
  input.records.push_back(Record(6 * kSecond, 7 * kSecond, {}, 0));
  input.records[1].cached_tokens = 64;
  input.rate_asked_per_s = 0.5;
  auto report = ReportJson(input);
  EXPECT_DOUBLE_EQ(report["request_rate_achieved"], 2 / 5.0);  // two gaps within 5 s of sending
  EXPECT_DOUBLE_EQ(report["request_rate_asked"], 0.5);
  EXPECT_DOUBLE_EQ(report["input_token_throughput"], 120 / 6.0);
  EXPECT_DOUBLE_EQ(report["output_token_throughput"], 4 / 6.0);
  EXPECT_EQ(report["cached_prompt_tokens"], 64);
  EXPECT_DOUBLE_EQ(report["tpot_ms"]["mean"], 1000);          // only the request with two tokens
  EXPECT_DOUBLE_EQ(report["normalized_ttft_ms"]["max"], 20);  // 1000 / 50; the empty prompt does not count
  EXPECT_TRUE(report["concurrency"].is_null());
  EXPECT_TRUE(report["goodput"].is_null());
  input.rate_asked_per_s = 0;
  input.concurrency = 1;
  input.records.resize(1);
  report = ReportJson(input);
  EXPECT_TRUE(report["request_rate_asked"].is_null());
  EXPECT_TRUE(report["request_rate_achieved"].is_null());
  EXPECT_EQ(report["concurrency"], 1);
}

TEST(ServingReport, TheTableHasTheFiguresOfTheObject) {
  ReportInput input;
  input.records.push_back(Record(kSecond, kSecond + 123 * kMillisecond, {45 * kMillisecond}, 50));
  input.records.push_back(
      {.outcome = RequestRecord::Outcome::kFailed, .due_ns = kSecond, .sent_ns = kSecond, .done_ns = 5 * kSecond});
  const std::string table = results::RunTable(ResultOf(input));
  for (const char* text : {"1 completed, 1 failed, 0 rejected in 4.00 s",
                           "0.250 requests/s, 12.5 input tokens/s, 0.5 output tokens/s; goodput - ",
                           "Times (ms)                   mean     median", "TTFT                       123.00",
                           "gap                         45.00", "total                      168.00"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << "\n" << table;
  }
}

TEST(ServingReport, TheResultStatesTheObjectives) {
  ReportInput input;
  input.slo = {.ttft_ns = 500 * kMillisecond, .tbt_ns = 50 * kMillisecond};
  input.records.push_back(Record(kSecond, kSecond + 123 * kMillisecond, {45 * kMillisecond}, 50));
  input.records.push_back(Record(kSecond, kSecond + 123 * kMillisecond, {45 * kMillisecond}, 50));
  input.records.back().slo = {.ttft_ns = 2 * kSecond};
  const std::string table = results::RunTable(ResultOf(input));
  EXPECT_NE(table.find("\nObjectives: TTFT 500 to 2000 ms, gap 50 ms\n"), std::string::npos) << table;
  const auto objectives = ReportJson(input)["objectives"];
  EXPECT_EQ(objectives["ttft_ms"]["least"], 500);
  EXPECT_EQ(objectives["ttft_ms"]["most"], 2000);
  EXPECT_EQ(objectives["tbt_ms"]["least"], 50);
  EXPECT_TRUE(objectives["jct_ms"].is_null());
  EXPECT_EQ(results::RunTable(ResultOf({})).find("Objectives"), std::string::npos) << "no request has objectives";
}

TEST(ServingReport, UnknownFiguresAreNull) {
  const auto report = ReportJson({});
  for (const char* key : {"ttft_ms", "tbt_ms", "goodput", "slo_attainment", "request_throughput", "preemptions"}) {
    EXPECT_TRUE(report[key].is_null()) << key;
  }
  EXPECT_NE(results::RunTable(ResultOf({})).find("\nTTFT  "), std::string::npos);
}

}  // namespace
}  // namespace tactus::cli
