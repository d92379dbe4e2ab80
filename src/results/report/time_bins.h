// Values over time in a bounded number of bins, whatever their number and however long the run: of each bin the least,
// the largest and the mean. The bins' width doubles when time runs beyond them, so nothing need be known beforehand.
// Caller's thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.h"

namespace tactus::results {

class TimeBins {
 public:
  static constexpr size_t kMostBins = 720;  // about one for a pixel of a plot; a run fills more than half of them

  struct Bin {
    double least = 0, largest = 0, sum = 0, weight = 0;  // weight 0: nothing was told
    double mean() const { return sum / weight; }
  };

  // The value at a time from 0 on. `weight`: in the mean, above 0.
  void Add(TimeNs at_ns, double value, double weight = 1);

  bool empty() const { return used_ == 0; }
  DurationNs width_ns() const { return width_ns_; }
  const std::vector<Bin>& bins() const { return bins_; }  // those up to the last that was told something
  double largest() const;

 private:
  DurationNs width_ns_ = kMillisecond;
  std::vector<Bin> bins_;
  size_t used_ = 0;
};

// Adds the values of the other to `into`.
void Join(const TimeBins::Bin& from, TimeBins::Bin* into);

}  // namespace tactus::results
