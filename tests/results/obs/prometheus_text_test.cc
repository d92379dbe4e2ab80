#include "results/obs/prometheus_text.h"

#include <gtest/gtest.h>

namespace tactus::results {
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

TEST(PrometheusText, SamplesOfAFamilyHaveTheirOwnLabels) {
  PrometheusText text(Labels{{"model_name", "m"}});
  text.Gauge("g", "A level.", -2.5);
  text.Family("f_total", PrometheusText::Type::kCounter, "By reason.");
  text.Sample(1, Labels{{"reason", "stop"}});
  text.Sample(2, Labels{{"reason", "length"}});
  BucketHistogram h({1});
  h.Observe(2, 3);
  text.Family("h", PrometheusText::Type::kHistogram, "Sizes.");
  text.Sample(h, Labels{{"kind", "k"}});
  EXPECT_EQ(text.Take(),
            "# HELP g A level.\n# TYPE g gauge\ng{model_name=\"m\"} -2.5\n"
            "# HELP f_total By reason.\n# TYPE f_total counter\n"
            "f_total{model_name=\"m\",reason=\"stop\"} 1\n"
            "f_total{model_name=\"m\",reason=\"length\"} 2\n"
            "# HELP h Sizes.\n# TYPE h histogram\n"
            "h_count{model_name=\"m\",kind=\"k\"} 3\n"
            "h_sum{model_name=\"m\",kind=\"k\"} 6\n"
            "h_bucket{model_name=\"m\",kind=\"k\",le=\"1\"} 0\n"
            "h_bucket{model_name=\"m\",kind=\"k\",le=\"+Inf\"} 3\n");
}

TEST(BucketHistogram, UpperBoundsAreInclusive) {
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
}  // namespace tactus::results
