// Prometheus text exposition of plain numbers, written by prometheus-cpp's serialiser. The hot loop owns the numbers
// and uses no registry: a scrape costs writing a few kilobytes and never waits for compute.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tactus::results {

// A fixed-bucket histogram for Prometheus. One writer. Not prometheus-cpp's, which locks a mutex per observation (19 ns
// on Zen 5, this 4) and adds one value at a time, while the loop reports many equal gaps at once.
class BucketHistogram {
 public:
  explicit BucketHistogram(std::vector<double> upper_bounds)
      : bounds_(std::move(upper_bounds)), counts_(bounds_.size() + 1) {}
  void Observe(double value, uint64_t count = 1);
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // last: above every bound
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

using Labels = std::vector<std::pair<std::string, std::string>>;

class PrometheusText {
 public:
  explicit PrometheusText(Labels common);
  ~PrometheusText();
  // Starts a family; the following samples belong to it. type: counter, gauge or histogram.
  enum class Type { kCounter, kGauge, kHistogram };
  void Family(std::string_view name, Type type, std::string_view help);
  void Sample(double value, const Labels& labels = {});
  void Sample(const BucketHistogram& histogram, const Labels& labels = {});
  // A family with one sample.
  void Counter(std::string_view name, std::string_view help, double value);
  void Gauge(std::string_view name, std::string_view help, double value);
  void Histogram(std::string_view name, std::string_view help, const BucketHistogram& histogram);
  std::string Take() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::results
