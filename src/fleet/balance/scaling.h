// How many replicas a fleet has, by its load (Llumnix, OSDI 2024, 4.4): the mean freeness (fleet/balance/rebalance.h)
// of the replicas that take requests is kept in a range. Below it for a while one more replica starts; above it for a
// while the one with the fewest running sequences is drained: it takes no more requests, and what runs there moves away
// or ends. Deterministic; the simulator asks it.
//
// Ours: one change at a time, and none while a replica starts, so that the effect of each is seen before the next; and
// a replica that is being drained comes back before another one starts.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "fleet/balance/balancer.h"

namespace tactus::fleet {

struct ScalingOptions {
  int32_t least = 1;           // replicas that always take requests
  double start_below = 10;     // tokens per running sequence, on average
  double drain_above = 60;     // the same; above start_below
  DurationNs after_ns = 0;     // freeness stays beyond the limit for this time, without a break
  DurationNs starting_ns = 0;  // from the start of a replica until it takes requests
};

enum class ReplicaStanding : uint8_t { kOff, kStarting, kOn, kDraining };

class Scaler {
 public:
  // The first options.least of `replicas` are on, the others off.
  Scaler(const ScalingOptions& options, int32_t replicas);

  // Looks at the fleet. `replicas`: all there can be, as they stand at now_ns, which never falls.
  void Look(std::span<const ReplicaView> replicas, TimeNs now_ns);
  // Since the last look: which stand otherwise now.
  std::span<const int32_t> changed() const { return changed_; }
  ReplicaStanding standing(int32_t replica) const { return replicas_[static_cast<size_t>(replica)].standing; }
  // Whether everything is to leave a replica (PairReplicas), by its index.
  const std::vector<bool>& draining() const { return draining_; }

  int64_t started() const { return started_; }
  int64_t drained() const { return drained_; }
  // Time in which replicas were not off, from from_ns to to_ns, summed over them; to_ns: not before the last look.
  DurationNs UsedNs(TimeNs from_ns, TimeNs to_ns) const;

 private:
  struct Use {
    ReplicaStanding standing = ReplicaStanding::kOff;
    TimeNs since_ns = 0;  // of its standing where that is kStarting
  };
  struct Span {
    TimeNs from_ns = 0, to_ns = kNever;
  };
  void Set(int32_t replica, ReplicaStanding standing, TimeNs now_ns);
  int32_t ToStart(std::span<const ReplicaView> replicas) const;
  int32_t ToDrain(std::span<const ReplicaView> replicas) const;

  const ScalingOptions options_;
  std::vector<Use> replicas_;
  std::vector<bool> draining_;
  std::vector<int32_t> changed_;
  std::vector<std::vector<Span>> used_;  // of each replica, in order; the last is open while it is not off
  TimeNs low_since_ns_ = kNever, high_since_ns_ = kNever;
  int64_t started_ = 0, drained_ = 0;
};

}  // namespace tactus::fleet
