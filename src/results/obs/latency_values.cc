#include "results/obs/latency_values.h"

#include <algorithm>
#include <cmath>

namespace tactus::results {

Summary ExactValues::Summarize(double scale) const {
  Summary s;
  if (values_.empty()) return s;
  std::vector<std::pair<int64_t, int64_t>> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  int64_t total = 0;
  double sum = 0;
  for (const auto& [value, count] : sorted) {
    total += count;
    sum += static_cast<double>(value) * static_cast<double>(count);
  }
  const auto quantile = [&](double q) {
    const auto rank = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * static_cast<double>(total))));
    int64_t seen = 0;
    for (const auto& [value, count] : sorted) {
      seen += count;
      if (seen >= rank) return static_cast<double>(value) * scale;
    }
    return static_cast<double>(sorted.back().first) * scale;
  };
  s.known = true;
  s.mean = sum / static_cast<double>(total) * scale;
  s.p50 = quantile(0.5);
  s.p90 = quantile(0.9);
  s.p95 = quantile(0.95);
  s.p99 = quantile(0.99);
  s.max = static_cast<double>(sorted.back().first) * scale;
  return s;
}

}  // namespace tactus::results
