#include "obs/prometheus_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tactus {
namespace {

std::string Number(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "+Inf" : "-Inf";
  if (v == std::floor(v) && std::abs(v) < 1e15) return fmt::format("{:.0f}", v);
  return fmt::format("{}", v);
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\', out += c;
    else if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

}  // namespace

void BucketHistogram::Observe(double value, uint64_t count) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(at)] += count;
  sum_ += value * static_cast<double>(count);
}

void PrometheusText::Family(std::string_view name, std::string_view type, std::string_view help) {
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void PrometheusText::Line(std::string_view name, const Labels& labels, std::string_view extra_name, std::string_view extra_value,
                          double value) {
  text_ += name;
  std::string inside;
  auto add = [&inside](std::string_view k, std::string_view v) {
    inside += fmt::format("{}{}=\"{}\"", inside.empty() ? "" : ",", k, Escaped(v));
  };
  for (const auto& [k, v] : common_) add(k, v);
  for (const auto& [k, v] : labels) add(k, v);
  if (!extra_name.empty()) add(extra_name, extra_value);
  if (!inside.empty()) text_ += "{" + inside + "}";
  text_ += " " + Number(value) + "\n";
}

void PrometheusText::Sample(std::string_view name, double value, const Labels& labels) { Line(name, labels, {}, {}, value); }

void PrometheusText::Sample(std::string_view name, const BucketHistogram& histogram, const Labels& labels) {
  uint64_t cumulative = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    cumulative += histogram.counts()[i];
    const bool last = i == histogram.bounds().size();
    Line(fmt::format("{}_bucket", name), labels, "le", last ? "+Inf" : Number(histogram.bounds()[i]), static_cast<double>(cumulative));
  }
  Line(fmt::format("{}_sum", name), labels, {}, {}, histogram.sum());
  Line(fmt::format("{}_count", name), labels, {}, {}, static_cast<double>(cumulative));
}

void PrometheusText::Counter(std::string_view name, std::string_view help, double value) {
  Family(name, "counter", help);
  Sample(name, value);
}

void PrometheusText::Gauge(std::string_view name, std::string_view help, double value) {
  Family(name, "gauge", help);
  Sample(name, value);
}

void PrometheusText::Histogram(std::string_view name, std::string_view help, const BucketHistogram& histogram) {
  Family(name, "histogram", help);
  Sample(name, histogram);
}

}  // namespace tactus
