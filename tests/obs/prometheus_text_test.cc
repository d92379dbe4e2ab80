#include "obs/prometheus_text.h"

#include <gtest/gtest.h>

namespace tactus {
namespace {

TEST(PrometheusText, WritesTheExpositionFormat) {
  PrometheusText text(Labels{{"model_name", "a\"b\\c\n"}});
  text.Counter("x_total", "Things.", 3);
  BucketHistogram h({0.1, 1});
  h.Observe(0.05);
  h.Observe(0.1);
  h.Observe(0.5, 2);
  h.Observe(7);
  text.Histogram("y_seconds", "Times.", h);
  EXPECT_EQ(text.Take(),
            "# HELP x_total Things.\n# TYPE x_total counter\n"
            "x_total{model_name=\"a\\\"b\\\\c\\n\"} 3\n"
            "# HELP y_seconds Times.\n# TYPE y_seconds histogram\n"
            "y_seconds_count{model_name=\"a\\\"b\\\\c\\n\"} 5\n"
            "y_seconds_sum{model_name=\"a\\\"b\\\\c\\n\"} 8.15\n"
            "y_seconds_bucket{model_name=\"a\\\"b\\\\c\\n\",le=\"0.1\"} 2\n"
            "y_seconds_bucket{model_name=\"a\\\"b\\\\c\\n\",le=\"1\"} 4\n"
            "y_seconds_bucket{model_name=\"a\\\"b\\\\c\\n\",le=\"+Inf\"} 5\n");
}

}  // namespace
}  // namespace tactus
