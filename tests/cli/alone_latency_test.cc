#include "cli/bench/alone_latency.h"

#include <gtest/gtest.h>

namespace tactus::cli {
namespace {

sim::WorkloadRequest Of(int64_t prompt, int64_t output) {
  sim::WorkloadRequest r;
  r.prompt_tokens = prompt;
  r.output_tokens = output;
  return r;
}

TEST(AloneLatency, InterpolatesLinearlyBetweenMeasuredPoints) {
  const std::vector<AlonePoint> points = {{100, 1000, 10}, {200, 3000, 20}, {1000, 11000, 20}};
  EXPECT_EQ(AloneAt(points, Of(100, 1)), (Slo{1000, 10, 1000}));
  EXPECT_EQ(AloneAt(points, Of(150, 1)).ttft_ns, 2000);
  EXPECT_EQ(AloneAt(points, Of(600, 1)).ttft_ns, 7000);
  EXPECT_EQ(AloneAt(points, Of(10, 1)).ttft_ns, 1000) << "below the first point its value";
  EXPECT_EQ(AloneAt(points, Of(2000, 1)).ttft_ns, 21000) << "beyond the last point the line continues";
  // 50 more tokens after 100: the mean gap is that of a context of 125, the longest that of 150.
  EXPECT_EQ(AloneAt(points, Of(100, 51)), (Slo{1000, 15, 1000 + 50 * 12 + 25}));
  EXPECT_EQ(AloneAt({{50, 7, 3}}, Of(500, 3)), (Slo{7, 3, 13})) << "a single point is constant";
  EXPECT_EQ(AloneAt({{50, 0, 0}}, Of(500, 3)).ttft_ns, 1) << "never 0, which means no objective";
}

TEST(AloneLatency, TextListsMeasuredPoints) {
  EXPECT_EQ(AloneText({{17, 12e6, 5.1e6}, {900, 80e6, 6e6}}),
            "17 prompt tokens: 12.0 ms to the first token, then 5.10 ms each; 900 prompt tokens: 80.0 ms to the first "
            "token, then 6.00 ms each");
}

}  // namespace
}  // namespace tactus::cli
