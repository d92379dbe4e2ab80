// The largest value at which something still holds, by doubling and halving to a bracket and then bisecting it (by the
// geometric middle: rates are known to a share, not to a step). What is asked for is taken to hold below any value at
// which it holds; where noise breaks that, the answer is one of the places where it changes.
//
// Thread rule: none of its own.
#pragma once

#include <functional>
#include <optional>

#include "tactus/status.h"

namespace tactus::sim {

struct LargestRange {
  double low = 0, high = 0;  // 0 < low <= high
  double start = 1;          // where to begin; kept within low and high
  double tolerance = 0.02;   // done when the bracket's ends differ by no more than this share of the lower
  bool whole = false;        // whole numbers only
};

struct Largest {
  std::optional<double> held;   // the largest that held; absent: none of those tried
  std::optional<double> broke;  // the smallest that broke; absent: none of those tried
  bool finished = true;         // false: stopped before the bracket was narrow
};

// Asks `holds` for about 5 + log2(0.7 / tolerance) values. kCancelled from it ends the search with what is known; any
// other error is the answer.
Result<Largest> FindLargest(const LargestRange& range, const std::function<Result<bool>(double)>& holds);

}  // namespace tactus::sim
