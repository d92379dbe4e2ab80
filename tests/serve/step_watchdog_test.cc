#include "serve/step_watchdog.h"

#include <gtest/gtest.h>

namespace tactus::serve {
namespace {

EngineStats InFlight(int64_t step, TimeNs since_ns, DurationNs predicted_ns) {
  EngineStats stats;
  stats.step_in_flight = step;
  stats.step_since_ns = since_ns;
  stats.step_predicted_ns = predicted_ns;
  return stats;
}

// Looks every 100 ms of `for_ns`; the first line, or empty.
std::string LookFor(StepWatchdog* watchdog, const EngineStats& stats, TimeNs from_ns, DurationNs for_ns) {
  for (TimeNs now_ns = from_ns; now_ns <= from_ns + for_ns; now_ns += 100 * kMillisecond) {
    if (const auto line = watchdog->Look(stats, now_ns)) return *line;
  }
  return {};
}

TEST(StepWatchdog, AStepBeyondItsLimitIsStuckUntilItsResultComes) {
  StepWatchdog watchdog(10, 2 * kSecond);
  const EngineStats stats = InFlight(7, kSecond, 500 * kMillisecond);  // the limit is 5 s
  EXPECT_EQ(LookFor(&watchdog, stats, kSecond, 5 * kSecond), "");
  EXPECT_FALSE(watchdog.stuck());
  const std::string line = LookFor(&watchdog, stats, 6 * kSecond + 1, kSecond);
  EXPECT_TRUE(line.starts_with("error: step 7 has no result after 5.4 s; predicted were 500.000 ms")) << line;
  EXPECT_TRUE(watchdog.stuck());
  EXPECT_EQ(LookFor(&watchdog, stats, 8 * kSecond, 60 * kSecond), "") << "it is reported once";
  const auto ended = watchdog.Look(EngineStats(), 71 * kSecond);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(*ended, "warning: the result of step 7 came after 70.0 s; the server works again");
  EXPECT_FALSE(watchdog.stuck());
  EXPECT_FALSE(watchdog.Look(EngineStats(), 72 * kSecond).has_value());
}

TEST(StepWatchdog, ShortStepsHaveTheLeastLimitAndUnpredictedOnesALongOne) {
  StepWatchdog watchdog(10, 2 * kSecond);
  EXPECT_EQ(LookFor(&watchdog, InFlight(1, 0, kMillisecond), 0, 2 * kSecond), "");
  EXPECT_NE(LookFor(&watchdog, InFlight(1, 0, kMillisecond), 2 * kSecond + 1, kSecond), "");
  StepWatchdog other(10, 2 * kSecond);
  EXPECT_EQ(LookFor(&other, InFlight(1, 0, 0), 0, StepWatchdog::kUnpredictedNs), "");
  EXPECT_NE(LookFor(&other, InFlight(1, 0, 0), StepWatchdog::kUnpredictedNs + 1, kSecond), "");
}

// After a pause of the whole process the first looks see a long wait, and then the result comes.
TEST(StepWatchdog, AJumpOfTheClockIsNoStuckStep) {
  StepWatchdog watchdog(10, 2 * kSecond);
  const EngineStats stats = InFlight(3, 0, kMillisecond);
  EXPECT_EQ(LookFor(&watchdog, stats, 0, kSecond), "");
  for (int look = 0; look + 1 < StepWatchdog::kLooks; ++look)
    EXPECT_FALSE(watchdog.Look(stats, 3600 * kSecond).has_value());
  for (int64_t step = 4; step < 50; ++step)  // each of them is late at one look
    EXPECT_FALSE(watchdog.Look(InFlight(step, 0, kMillisecond), 3601 * kSecond).has_value());
  EXPECT_FALSE(watchdog.stuck());
}

TEST(StepWatchdog, ZeroTurnsItOff) {
  StepWatchdog watchdog(0, 2 * kSecond);
  EXPECT_EQ(LookFor(&watchdog, InFlight(1, 0, kMillisecond), 0, 7200 * kSecond), "");
}

}  // namespace
}  // namespace tactus::serve
