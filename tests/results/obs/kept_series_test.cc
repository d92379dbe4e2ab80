// The time series in a result object.
#include "results/obs/kept_series.h"
#include "base/json.h"

#include <gtest/gtest.h>

namespace tactus::results {
namespace {

RunInterval IntervalAt(TimeNs from_ns) {
  RunInterval interval;
  interval.from_ns = from_ns;
  interval.arrived = 3;
  interval.completed = 2;
  interval.rejected = 1;
  interval.in_flight = 5;
  interval.output_tokens = 40;
  interval.gap_ms = {.known = true, .p50 = 20, .p99 = 30, .max = 31.5};
  return interval;
}

TEST(KeptSeriesTest, RowsHaveARunFilesColumnsAndNullIfUnknown) {
  KeptSeries series(kSecond / 2);
  series.Add(IntervalAt(kSecond));
  const Json json = series.ToJson();
  EXPECT_EQ(json["interval_s"], 0.5);
  EXPECT_EQ(json["left_out"], 0);
  ASSERT_EQ(json["rows"].size(), 1u);
  std::string columns;
  for (const auto& [name, value] : json["rows"][0].items()) columns += (columns.empty() ? "" : ",") + name;
  EXPECT_EQ(columns, RunFileTableHeader(RunFileTable::kTimeseries));
  EXPECT_EQ(json["rows"][0]["from_s"], 1);
  EXPECT_EQ(json["rows"][0]["in_flight"], 5);
  EXPECT_EQ(json["rows"][0]["gap_max_ms"], 31.5);
  EXPECT_TRUE(json["rows"][0]["ttft_p50_ms"].is_null());
}

TEST(KeptSeriesTest, TheTableHasTokensPerSecond) {
  KeptSeries series(kSecond / 2);
  series.Add(IntervalAt(kSecond));
  const std::string text = series.Table();
  EXPECT_NE(text.find("tokens/s"), std::string::npos);
  EXPECT_NE(text.find("80.0"), std::string::npos) << text;  // 40 tokens in half a second
  EXPECT_NE(text.find("31.5"), std::string::npos) << text;
}

TEST(KeptSeriesTest, RowsBeyondTheLimitAreCounted) {
  KeptSeries series(kMillisecond);
  for (size_t i = 0; i < KeptSeries::kMostRows + 2; ++i) series.Add(IntervalAt(static_cast<TimeNs>(i) * kMillisecond));
  const Json json = series.ToJson();
  EXPECT_EQ(json["rows"].size(), KeptSeries::kMostRows);
  EXPECT_EQ(json["left_out"], 2);
  EXPECT_NE(series.Table().find("and 2 more: use a longer interval, or a run file (--run-out)"), std::string::npos);
}

}  // namespace
}  // namespace tactus::results
