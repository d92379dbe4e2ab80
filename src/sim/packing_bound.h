// How many things fit at most, where each takes something of several resources: the linear relaxation of that question.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace tactus::sim {

// What each thing takes of a resource, and how much there is of it; none is below 0.
struct PackingRow {
  std::vector<double> takes;
  double there_is = 0;
};

struct PackingBound {
  double most = 0;             // no choice of things that keeps every row has more
  std::vector<double> shares;  // of each thing, 0 to 1, that reach about as many
  std::vector<double> prices;  // of each row; 0: it does not hold back
};

// `most` is right whatever was rounded on the way: for any prices p >= 0, a choice that keeps every row has at most
//   sum over rows of p * there_is + sum over things of max(0, 1 - sum over rows of p * takes)
// things, because each of its things is worth no more than what it pays and what is left of 1. The simplex method only
// finds prices that make this small. `keep_going` is asked before each of its steps and may be null; where it says no,
// the prices so far are taken.
PackingBound BoundPacking(const std::vector<PackingRow>& rows, size_t things,
                          const std::function<bool()>& keep_going = {});

}  // namespace tactus::sim
