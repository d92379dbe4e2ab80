// The interval of a run's time series, in a result and in a run file.
#include "cli/options/run_out.h"

#include <gtest/gtest.h>

namespace tactus::cli {
namespace {

TEST(TimeseriesTest, TimeseriesSetsTheRunFilesInterval) {
  RunOut out;
  const auto none = KeepSeries({}, &out);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  EXPECT_EQ(out.interval.ns, kSecond);
  const auto series = KeepSeries({.interval = {kSecond / 10}}, &out);
  ASSERT_TRUE(series.ok());
  EXPECT_EQ((*series)->interval_ns(), kSecond / 10);
  EXPECT_EQ(out.interval.ns, kSecond / 10);
}

TEST(TimeseriesTest, WrongIntervalsAreNamed) {
  RunOut out;
  EXPECT_NE(KeepSeries({.interval = {1}}, &out).status().message().find("--timeseries is 1ns; it must be between 1ms"),
            std::string::npos);
  out.interval.ns = 2 * kSecond;
  const Status contradicted = KeepSeries({.interval = {kSecond}}, &out).status();
  EXPECT_NE(contradicted.message().find("--timeseries is 1s and --run-interval 2s"), std::string::npos)
      << contradicted.message();
  EXPECT_TRUE(KeepSeries({.interval = {2 * kSecond}}, &out).ok());
}

}  // namespace
}  // namespace tactus::cli
