#include "results/obs/prometheus_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>

namespace tactus::results {

void BucketHistogram::Observe(double value, uint64_t count) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(at)] += count;
  sum_ += value * static_cast<double>(count);
}

struct PrometheusText::Impl {
  Labels common;
  std::vector<prometheus::MetricFamily> families;

  prometheus::ClientMetric& NewMetric(const Labels& labels) {
    prometheus::ClientMetric& metric = families.back().metric.emplace_back();
    for (const Labels* list : {static_cast<const Labels*>(&common), &labels}) {
      for (const auto& [name, value] : *list) {
        prometheus::ClientMetric::Label label;
        label.name = name;
        label.value = value;
        metric.label.push_back(std::move(label));
      }
    }
    return metric;
  }
};

PrometheusText::PrometheusText(Labels common) : impl_(std::make_unique<Impl>()) {
  impl_->common = std::move(common);
}
PrometheusText::~PrometheusText() = default;

void PrometheusText::Family(std::string_view name, Type type, std::string_view help) {
  prometheus::MetricFamily& family = impl_->families.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type == Type::kCounter ? prometheus::MetricType::Counter
                : type == Type::kGauge ? prometheus::MetricType::Gauge
                                       : prometheus::MetricType::Histogram;
}

void PrometheusText::Sample(double value, const Labels& labels) {
  prometheus::ClientMetric& metric = impl_->NewMetric(labels);
  metric.counter.value = metric.gauge.value = value;  // the family's type selects one
}

void PrometheusText::Sample(const BucketHistogram& histogram, const Labels& labels) {
  prometheus::ClientMetric& metric = impl_->NewMetric(labels);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    cumulative += histogram.counts()[i];
    prometheus::ClientMetric::Bucket bucket;
    bucket.cumulative_count = cumulative;
    bucket.upper_bound =
        i < histogram.bounds().size() ? histogram.bounds()[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back(bucket);
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = histogram.sum();
}

void PrometheusText::Counter(std::string_view name, std::string_view help, double value) {
  Family(name, Type::kCounter, help);
  Sample(value);
}

void PrometheusText::Gauge(std::string_view name, std::string_view help, double value) {
  Family(name, Type::kGauge, help);
  Sample(value);
}

void PrometheusText::Histogram(std::string_view name, std::string_view help, const BucketHistogram& histogram) {
  Family(name, Type::kHistogram, help);
  Sample(histogram);
}

std::string PrometheusText::Take() const {
  return prometheus::TextSerializer().Serialize(impl_->families);
}

}  // namespace tactus::results
