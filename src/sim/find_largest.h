// Finds the largest value at which a condition holds: doubles or halves to a bracket, then bisects it at the geometric
// mean, because rates have a relative precision. Assumes that the condition holds at every smaller value; if noise
// breaks that, the result is one of the values at which it changes.
// Thread rule: none; use from one thread.
#pragma once

#include <functional>
#include <optional>

#include "tactus/status.h"

namespace tactus::sim {

struct LargestRange {
  double low = 0, high = 0;  // 0 < low <= high
  double start = 1;          // first value; clamped to [low, high]
  double tolerance = 0.02;   // done if the bracket's ends differ by at most this share of the lower
  bool whole = false;        // whole numbers only
};

struct Largest {
  std::optional<double> held;   // absent: no tested value held
  std::optional<double> broke;  // the smallest that failed; absent: no tested value failed
  bool finished = true;         // false: stopped before the bracket was narrow
};

// Calls `holds` with about 5 + log2(0.7 / tolerance) values. If it returns kCancelled, the search ends with the result
// so far; any other error is returned.
Result<Largest> FindLargest(const LargestRange& range, const std::function<Result<bool>(double)>& holds);

}  // namespace tactus::sim
