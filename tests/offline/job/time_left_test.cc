#include "offline/job/time_left.h"

#include <gtest/gtest.h>

namespace tactus::offline {
namespace {

// Lines count only after their end, and of many concurrent lines the first ends soon.
TEST(TimeLeft, TheTimeIsReportedOnceAsManyLinesHaveEndedAsRun) {
  const auto left = [](int64_t done, int64_t lines, int64_t generating, double work_share, DurationNs elapsed_ns) {
    RunProgress p;
    p.counts.lines = lines;
    p.counts.out = done;
    p.generating = generating;
    p.work_share = work_share;
    p.elapsed_ns = elapsed_ns;
    return TimeLeft_s(p, done);
  };
  EXPECT_FALSE(left(1, 40, 39, 0.0004, 2 * kSecond)) << "1:24 h for a job of 37 s";
  EXPECT_FALSE(left(2, 40, 1, 0, 2 * kSecond));
  EXPECT_DOUBLE_EQ(*left(10, 40, 10, 0, 10 * kSecond), 30);
  EXPECT_DOUBLE_EQ(*left(10, 40, 10, 0.4, 10 * kSecond), 15) << "the plan has the lengths of lines";
  EXPECT_DOUBLE_EQ(*left(10, 40, 10, 0.0001, 10 * kSecond), 90) << "answers count with their maximal length";
  EXPECT_DOUBLE_EQ(*left(10, 40, 10, 0.99, 10 * kSecond), 10);
  EXPECT_DOUBLE_EQ(*left(40, 40, 0, 1, 10 * kSecond), 0);
}

}  // namespace
}  // namespace tactus::offline
