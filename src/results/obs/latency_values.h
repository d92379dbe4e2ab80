// Values of one latency, in a histogram or complete. Thread rule: one writer.
#pragma once

#include <utility>
#include <vector>

#include "results/obs/histogram.h"

namespace tactus::results {

// Like Histogram, without bucket error. Memory grows with the number of values.
class ExactValues {
 public:
  void Add(int64_t value, int64_t count = 1) { values_.emplace_back(value, count); }
  // The q-quantile is the smallest value v such that at least the share q of all values is <= v. All values multiplied
  // by `scale`.
  Summary Summarize(double scale) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> values_;  // value, count
};

class LatencyValues {
 public:
  explicit LatencyValues(bool exact) : exact_(exact) {}
  void Add(int64_t value, int64_t count = 1) {
    if (exact_) {
      all_.Add(value, count);
    } else {
      histogram_.Add(value, count);
    }
  }
  Summary Summarize(double scale) const { return exact_ ? all_.Summarize(scale) : histogram_.Summarize(scale); }

 private:
  bool exact_;
  Histogram histogram_;
  ExactValues all_;
};

}  // namespace tactus::results
