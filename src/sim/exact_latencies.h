// Every latency of a run, for percentiles without a bucket's error. Memory grows with the run. Thread rule: one thread.
#pragma once

#include <utility>
#include <vector>

#include "loop/events.h"
#include "obs/histogram.h"

namespace tactus {

class ExactValues {
 public:
  void Add(int64_t value, int64_t count = 1) { values_.emplace_back(value, count); }
  // As Histogram's, without its error: a quantile is the smallest value that at least so many are not above.
  Summary Summarize(double scale) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> values_;  // value, how often
};

struct ExactLatencies {
  ExactValues ttft_ns, normalized_ttft_ns, gap_ns, tpot_ns, e2e_ns, delay_ns;
  void Count(const StepEvents& events);
};

}  // namespace tactus
