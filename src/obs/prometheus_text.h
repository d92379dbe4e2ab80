// Writes Prometheus text exposition (version 0.0.4) from plain numbers. The hot loop owns the numbers; nothing here is shared, so
// a scrape costs the writing of a few kilobytes and never waits for compute.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tactus {

// A fixed-bucket histogram as Prometheus knows it. One writer.
class BucketHistogram {
 public:
  explicit BucketHistogram(std::vector<double> upper_bounds) : bounds_(std::move(upper_bounds)), counts_(bounds_.size() + 1) {}
  void Observe(double value, uint64_t count = 1);
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }   // last: above every bound
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

using Labels = std::vector<std::pair<std::string, std::string>>;

class PrometheusText {
 public:
  explicit PrometheusText(Labels common) : common_(std::move(common)) {}
  // HELP and TYPE lines; the samples that follow belong to it. type: counter, gauge, histogram.
  void Family(std::string_view name, std::string_view type, std::string_view help);
  void Sample(std::string_view name, double value, const Labels& labels = {});
  void Sample(std::string_view name, const BucketHistogram& histogram, const Labels& labels = {});
  // Family and one sample.
  void Counter(std::string_view name, std::string_view help, double value);
  void Gauge(std::string_view name, std::string_view help, double value);
  void Histogram(std::string_view name, std::string_view help, const BucketHistogram& histogram);
  std::string Take() { return std::move(text_); }

 private:
  void Line(std::string_view name, const Labels& labels, std::string_view extra_name, std::string_view extra_value, double value);
  Labels common_;
  std::string text_;
};

}  // namespace tactus
