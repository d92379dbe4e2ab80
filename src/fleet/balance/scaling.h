// Decides the number of replicas by the load (Llumnix, OSDI 2024, 4.4): keeps the mean freeness
// (fleet/balance/rebalance.h) of the replicas that accept requests within a range. If it is below the range for a
// while, one more replica starts; if above, the one with the fewest running sequences is drained: it accepts no more
// requests, and its sequences move away or end. Deterministic; used by the simulator.
//
// Ours: one change at a time, and none while a replica starts, so that the effect of each is observed before the next;
// and a draining replica is taken back before another one starts.
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
  int32_t least = 1;           // replicas that always accept requests
  double start_below = 10;     // tokens per running sequence, on average
  double drain_above = 60;     // the same; must exceed start_below
  DurationNs after_ns = 0;     // time for which freeness must be beyond the limit without interruption
  DurationNs starting_ns = 0;  // from the start of a replica until it accepts requests
};

enum class ReplicaStanding : uint8_t { kOff, kStarting, kOn, kDraining };

class Scaler {
 public:
  // The first options.least of `replicas` are on, the others off.
  Scaler(const ScalingOptions& options, int32_t replicas);

  // Evaluates the fleet. `replicas`: the state of all possible replicas at now_ns, which never decreases.
  void Look(std::span<const ReplicaView> replicas, TimeNs now_ns);
  // Replicas whose standing changed in the last Look.
  std::span<const int32_t> changed() const { return changed_; }
  ReplicaStanding standing(int32_t replica) const { return replicas_[static_cast<size_t>(replica)].standing; }
  // [replica] whether all its sequences must leave (for PairReplicas).
  const std::vector<bool>& draining() const { return draining_; }

  int64_t started() const { return started_; }
  int64_t drained() const { return drained_; }
  // Time from from_ns to to_ns in which replicas were not off, summed over replicas; to_ns: not before the last Look.
  DurationNs UsedNs(TimeNs from_ns, TimeNs to_ns) const;

 private:
  struct Use {
    ReplicaStanding standing = ReplicaStanding::kOff;
    TimeNs since_ns = 0;  // start of its standing
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
  std::vector<std::vector<Span>> used_;  // of each replica, in order; the last one is open while it is not off
  TimeNs low_since_ns_ = kNever, high_since_ns_ = kNever;
  int64_t started_ = 0, drained_ = 0;
};

}  // namespace tactus::fleet
