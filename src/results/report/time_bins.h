// Values over time in a bounded number of bins, for any number of values and length of run: least, largest and mean per
// bin. The bins' width doubles when time exceeds them, so the length need not be known. Caller's thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.h"

namespace tactus::results {

class TimeBins {
 public:
  static constexpr size_t kMostBins = 720;  // about one per pixel of a plot; a run fills more than half of them

  struct Bin {
    double least = 0, largest = 0, sum = 0, weight = 0;  // weight 0: no values
    double mean() const { return sum / weight; }
  };

  // Adds the value at a time from 0. `weight`: for the mean, above 0.
  void Add(TimeNs at_ns, double value, double weight = 1);

  bool empty() const { return used_ == 0; }
  DurationNs width_ns() const { return width_ns_; }
  const std::vector<Bin>& bins() const { return bins_; }  // up to the last one with a value
  double largest() const;

 private:
  DurationNs width_ns_ = kMillisecond;
  std::vector<Bin> bins_;
  size_t used_ = 0;
};

// Adds the bin `from` to `into`.
void Join(const TimeBins::Bin& from, TimeBins::Bin* into);

}  // namespace tactus::results
