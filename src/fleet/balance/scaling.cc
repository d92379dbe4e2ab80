#include "fleet/balance/scaling.h"

#include <algorithm>

#include "fleet/balance/rebalance.h"

namespace tactus::fleet {

Scaler::Scaler(const ScalingOptions& options, int32_t replicas)
    : options_(options),
      replicas_(static_cast<size_t>(replicas)),
      draining_(static_cast<size_t>(replicas)),
      used_(static_cast<size_t>(replicas)) {
  for (int32_t i = 0; i < replicas; ++i) {
    if (i < options_.least) Set(i, ReplicaStanding::kOn, 0);
  }
}

void Scaler::Set(int32_t replica, ReplicaStanding standing, TimeNs now_ns) {
  const auto i = static_cast<size_t>(replica);
  const bool was_off = replicas_[i].standing == ReplicaStanding::kOff;
  if (was_off && standing != ReplicaStanding::kOff) used_[i].push_back({.from_ns = now_ns});
  if (!was_off && standing == ReplicaStanding::kOff) used_[i].back().to_ns = now_ns;
  replicas_[i] = {standing, now_ns};
  draining_[i] = standing == ReplicaStanding::kDraining;
  changed_.push_back(replica);
}

void Scaler::Look(std::span<const ReplicaView> replicas, TimeNs now_ns) {
  changed_.clear();
  double sum = 0;
  int32_t on = 0;
  bool starts = false;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const auto replica = static_cast<int32_t>(i);
    Use& use = replicas_[i];
    if (use.standing == ReplicaStanding::kDraining && replicas[i].outstanding_requests == 0)
      Set(replica, ReplicaStanding::kOff, now_ns);
    if (use.standing == ReplicaStanding::kStarting && now_ns - use.since_ns >= options_.starting_ns)
      Set(replica, ReplicaStanding::kOn, now_ns);
    starts |= use.standing == ReplicaStanding::kStarting;
    if (use.standing != ReplicaStanding::kOn) continue;
    sum += FreenessOf(replicas[i]);
    ++on;
  }
  const double mean = sum / std::max(1, on);
  const int32_t next = ToStart(replicas), last = on > options_.least ? ToDrain(replicas) : -1;
  const bool low = !starts && next >= 0 && mean < options_.start_below;
  const bool high = !starts && last >= 0 && mean > options_.drain_above;
  low_since_ns_ = low ? std::min(low_since_ns_, now_ns) : kNever;
  high_since_ns_ = high ? std::min(high_since_ns_, now_ns) : kNever;
  if (low && now_ns - low_since_ns_ >= options_.after_ns) {
    low_since_ns_ = kNever;
    if (replicas_[static_cast<size_t>(next)].standing == ReplicaStanding::kDraining) {
      Set(next, ReplicaStanding::kOn, now_ns);
    } else {
      ++started_;
      Set(next, options_.starting_ns > 0 ? ReplicaStanding::kStarting : ReplicaStanding::kOn, now_ns);
    }
  }
  if (high && now_ns - high_since_ns_ >= options_.after_ns) {
    high_since_ns_ = kNever;
    ++drained_;
    Set(last, ReplicaStanding::kDraining, now_ns);
  }
}

// The draining replica with the most running sequences, otherwise the first that is off; -1: all are in use.
int32_t Scaler::ToStart(std::span<const ReplicaView> replicas) const {
  int32_t best = -1;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].standing == ReplicaStanding::kDraining &&
        (best < 0 || replicas[i].running > replicas[static_cast<size_t>(best)].running)) {
      best = static_cast<int32_t>(i);
    }
  }
  for (size_t i = 0; i < replicas_.size() && best < 0; ++i) {
    if (replicas_[i].standing == ReplicaStanding::kOff) best = static_cast<int32_t>(i);
  }
  return best;
}

// The replica with the fewest running sequences; of equals the last.
int32_t Scaler::ToDrain(std::span<const ReplicaView> replicas) const {
  int32_t best = -1;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].standing != ReplicaStanding::kOn) continue;
    if (best < 0 || replicas[i].running <= replicas[static_cast<size_t>(best)].running) best = static_cast<int32_t>(i);
  }
  return best;
}

DurationNs Scaler::UsedNs(TimeNs from_ns, TimeNs to_ns) const {
  DurationNs sum = 0;
  for (const std::vector<Span>& spans : used_) {
    for (const Span& span : spans)
      sum += std::max<DurationNs>(0, std::min(span.to_ns, to_ns) - std::max(span.from_ns, from_ns));
  }
  return sum;
}

}  // namespace tactus::fleet
