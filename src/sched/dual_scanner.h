// From which end of a plan the next request is taken (BlendServe, 3.4). A plan lies sorted by density, compute-heavy
// requests on the left and memory-heavy ones on the right. KV memory is split between the two ends so that what runs is
// together as dense as the whole job; the end goes next that has less of its part.
//
// The parts are counted in tokens whose K and V are read per step: memory time is reading, so a prefix that many share
// counts for each of them, though it is held once (ours; where nothing is shared it is the memory that they hold).
//
// Pure and deterministic: sums of integers, so that what runs counts the same in whichever order it came.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tactus/request.h"

namespace tactus::sched {

struct MemorySplit {
  double left = 0, right = 0;
};

// left + right = memory and left x left_density + right x right_density = memory x target, in [0, memory]; halves where
// both ends are equally dense.
inline MemorySplit SplitMemory(double memory, double left_density, double right_density, double target) {
  if (left_density == right_density) return {memory / 2, memory / 2};
  const double share = (target - right_density) / (left_density - right_density);
  const double left = memory * std::clamp(share, 0.0, 1.0);
  return {left, memory - left};
}

enum class ScanSide : uint8_t { kLeft, kRight };

class DualScanner {
 public:
  // Of what runs. A request counts to the left where it is denser than the job. The paper counts it to the pointer that
  // took it, which must then be remembered; the two differ only where both pointers stand on one side of the mean, and
  // there all memory goes to the nearer one.
  void Hold(const PlannedPlace& place) { Held(place) += Tokens(place); }
  void Release(const PlannedPlace& place) { Held(place) -= Tokens(place); }

  // Who goes next where the pointers stand at these two; the split is that of their densities now. An end that has less
  // to offer than its part leaves the rest to the other: the parts are proportions of what is taken, not limits.
  ScanSide Next(const PlannedPlace& left, const PlannedPlace& right) const {
    const MemorySplit part = SplitMemory(1, left.density, right.density, 1);
    // Each end as it would be with its next one, so that it holds its part on average and not at least.
    const double with_left = static_cast<double>(left_) + static_cast<double>(Tokens(left)) / 2;
    const double with_right = static_cast<double>(right_) + static_cast<double>(Tokens(right)) / 2;
    return with_left * part.right <= with_right * part.left ? ScanSide::kLeft : ScanSide::kRight;
  }

 private:
  static int64_t Tokens(const PlannedPlace& place) { return std::max<int64_t>(1, place.kv_tokens); }
  int64_t& Held(const PlannedPlace& place) { return place.density >= 1 ? left_ : right_; }

  int64_t left_ = 0, right_ = 0;  // PlannedPlace::kv_tokens
};

}  // namespace tactus::sched
