#include "sim/exact_latencies.h"

#include <algorithm>
#include <cmath>

namespace tactus {

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

// Counts what EngineMetrics counts.
void ExactLatencies::Count(const StepEvents& events) {
  for (const GapEvent& gap : events.gaps) (gap.first ? ttft_ns : gap_ns).Add(gap.gap_ns, gap.count);
  for (const RequestDoneEvent& d : events.done) {
    if (d.scheduled_ns > 0 || d.first_token_ns > 0) delay_ns.Add(d.scheduled_ns - d.arrival_ns);
    if (d.finish != FinishReason::kStop && d.finish != FinishReason::kLength) continue;
    e2e_ns.Add(d.done_ns - d.arrival_ns);
    if (d.first_token_ns == 0) continue;
    normalized_ttft_ns.Add((d.first_token_ns - d.arrival_ns) / std::max(d.prompt_tokens, 1));
    if (d.completion_tokens > 1) tpot_ns.Add((d.done_ns - d.first_token_ns) / (d.completion_tokens - 1));
  }
}

}  // namespace tactus
