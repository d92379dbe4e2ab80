// The line that shows how far a long command is.
#include "cli/options/progress_line.h"

#include <gtest/gtest.h>

namespace tactus::cli {
namespace {

TEST(ProgressText, HasRateAndTimeLeft) {
  EXPECT_EQ(ProgressText(15, 60, "requests", 5, "2 failed"),
            "[#####               ] 15/60 requests, 3.00/s, 15 s left; 2 failed");
  EXPECT_EQ(ProgressText(100, 100'000, "runs", 1, ""), "[                    ] 100/100000 runs, 100/s, 17 min left");
  EXPECT_EQ(ProgressText(1, 1000, "runs", 60, ""), "[                    ] 1/1000 runs, 0.02/s, 16.6 h left");
}

TEST(ProgressText, HasNeitherBeforeTheFirstAndNoTimeLeftAtTheEnd) {
  EXPECT_EQ(ProgressText(0, 4, "runs", 3, ""), "[                    ] 0/4 runs");
  EXPECT_EQ(ProgressText(4, 4, "runs", 8, ""), "[####################] 4/4 runs, 0.50/s");
  EXPECT_EQ(ProgressText(0, 0, "runs", 0, ""), "[                    ] 0/1 runs");
  EXPECT_EQ(ProgressText(5, 4, "runs", 5, ""), "[####################] 5/5 runs, 1.00/s") << "more than announced";
}

TEST(ShareText, HasTheTimeLeftOfWorkThatEndsAtATime) {
  EXPECT_EQ(ShareText(0.25, "3 of 12 steps", 10), "[#####               ] 3 of 12 steps, 30 s left");
  EXPECT_EQ(ShareText(0, "0 of 12 steps", 10), "[                    ] 0 of 12 steps");
  EXPECT_EQ(ShareText(1, "12 of 12 steps", 10), "[####################] 12 of 12 steps");
}

}  // namespace
}  // namespace tactus::cli
