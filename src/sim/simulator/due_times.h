// When each replica of a simulation is due: a tournament tree of the smallest times. The next time is read at once, a
// change costs the logarithm of the number of replicas, and a walk visits those that are due by their index.
// Plain data; thread rule: one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "base/units.h"

namespace tactus::sim {

class DueTimes {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  // All are due never.
  explicit DueTimes(size_t count = 0) : count_(count), leaves_(std::bit_ceil(std::max<size_t>(1, count))) {
    least_.assign(2 * leaves_, kNever);
  }

  TimeNs least() const { return least_[1]; }
  TimeNs operator[](size_t index) const { return least_[leaves_ + index]; }
  void Set(size_t index, TimeNs time_ns) {
    size_t node = leaves_ + index;
    least_[node] = time_ns;
    while ((node /= 2) > 0) {
      const TimeNs least = std::min(least_[2 * node], least_[2 * node + 1]);
      if (least_[node] == least) return;
      least_[node] = least;
    }
  }
  // The first index from `from` on whose time is not after `by_ns`; kNone: there is none.
  size_t FirstDue(size_t from, TimeNs by_ns) const {
    if (from >= count_) return kNone;
    size_t node = leaves_ + from;
    while (least_[node] > by_ns) {
      while (node % 2 == 1) node /= 2;  // the last of its parent; the root has no parent
      if (node == 0) return kNone;
      ++node;
    }
    while (node < leaves_) node = least_[2 * node] <= by_ns ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }

 private:
  size_t count_, leaves_;
  std::vector<TimeNs> least_;  // [2 * leaves_]: of the subtree of each node, the root at 1
};

}  // namespace tactus::sim
