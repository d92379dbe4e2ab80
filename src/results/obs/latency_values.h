// Values of one latency: in a histogram, or every one of them. Thread rule: one writer.
#pragma once

#include <utility>
#include <vector>

#include "results/obs/histogram.h"

namespace tactus::results {

// As Histogram's figures, without a bucket's error. Memory grows with the values.
class ExactValues {
 public:
  void Add(int64_t value, int64_t count = 1) { values_.emplace_back(value, count); }
  // A quantile is the smallest value that at least so many are not above. All figures multiplied by `scale`.
  Summary Summarize(double scale) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> values_;  // value, how often
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
