// An upper bound on how many things fit if each uses several resources: the linear relaxation of the packing problem.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace tactus::sim {

// Each thing's use of one resource, and its capacity; none is negative.
struct PackingRow {
  std::vector<double> takes;
  double there_is = 0;
};

struct PackingBound {
  double most = 0;             // no choice of things that satisfies every row has more
  std::vector<double> shares;  // of each thing, 0 to 1; they sum to about `most`
  std::vector<double> prices;  // one per row; 0: the row is not binding
};

// `most` is valid despite rounding: for any prices p >= 0, a choice that satisfies every row has at most sum over rows
// of p * there_is + sum over things of max(0, 1 - sum over rows of p * takes) things, because each chosen thing
// contributes at most its price plus the rest to 1. The simplex method only finds prices that make this small.
// `keep_going` is called before each of its steps and may be null; if it returns false, the current prices are used.
PackingBound BoundPacking(const std::vector<PackingRow>& rows, size_t things,
                          const std::function<bool()>& keep_going = {});

}  // namespace tactus::sim
