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

TEST(PrometheusText, FamiliesOfSeveralSamplesAndEveryType) {
  PrometheusText text(Labels{{"model", "m"}});
  text.Family("requests_total", PrometheusText::Type::kCounter, "Ended.");
  text.Sample(2, {{"reason", "stop"}});
  text.Sample(0, {{"reason", "length"}});
  text.Gauge("share", "Of memory.", 0.25);
  EXPECT_EQ(text.Take(),
            "# HELP requests_total Ended.\n# TYPE requests_total counter\n"
            "requests_total{model=\"m\",reason=\"stop\"} 2\n"
            "requests_total{model=\"m\",reason=\"length\"} 0\n"
            "# HELP share Of memory.\n# TYPE share gauge\n"
            "share{model=\"m\"} 0.25\n");
}

TEST(BucketHistogram, ABoundBelongsToItsBucket) {
  BucketHistogram h({1, 10});
  h.Observe(1);
  h.Observe(1.0001, 3);
  h.Observe(10);
  h.Observe(10.5, 2);
  h.Observe(-1);
  EXPECT_EQ(h.counts(), (std::vector<uint64_t>{2, 4, 2}));
  EXPECT_DOUBLE_EQ(h.sum(), 1 + 3 * 1.0001 + 10 + 21 - 1);
}

}  // namespace
}  // namespace tactus
