#include "core/sched/accelgen/distance.h"

#include <algorithm>

namespace tactus::core {

DistanceChoice::DistanceChoice(size_t capacity) {
  candidates_.reserve(capacity);
}

void DistanceChoice::Reset(Resources unit) {
  candidates_.clear();
  per_compute_ = 1.0 / static_cast<double>(std::max<int64_t>(1, unit.compute));
  per_memory_ = 1.0 / static_cast<double>(std::max<int64_t>(1, unit.memory));
}

void DistanceChoice::Add(int32_t id, Resources demand) {
  candidates_.push_back({static_cast<double>(demand.compute), static_cast<double>(demand.memory), id});
}

int32_t DistanceChoice::TakeNearest(Resources left) {
  const auto compute = static_cast<double>(left.compute), memory = static_cast<double>(left.memory);
  size_t kept = 0, nearest = 0;
  double least = -1;
  for (const Candidate& c : candidates_) {
    const double dc = (compute - c.compute) * per_compute_, dm = (memory - c.memory) * per_memory_;
    if (c.compute > compute || c.memory > memory) continue;
    const double distance = dc * dc + dm * dm;  // exact in tokens: below 2^53
    if (least < 0 || distance < least) {
      least = distance;
      nearest = kept;
    }
    candidates_[kept++] = c;
  }
  candidates_.resize(kept);
  if (kept == 0) return -1;
  const int32_t id = candidates_[nearest].id;
  candidates_.erase(candidates_.begin() + static_cast<ptrdiff_t>(nearest));
  return id;
}

}  // namespace tactus::core
