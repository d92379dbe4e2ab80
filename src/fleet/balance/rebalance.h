// Decides which replicas send running sequences to which others (Llumnix, OSDI 2024, 4.4): from those with little room
// to those with much, and away from drained ones. Freeness is the KV memory left after all waiting requests have
// theirs, divided by the running sequences: the tokens by which each may still grow. A prompt that waits although
// enough memory is free in several replicas together makes its replica's freeness negative, so that sequences move away
// and make room (defragmentation). Pure functions, used by the router and the simulator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fleet/balance/balancer.h"

namespace tactus::fleet {

struct RebalanceOptions {
  double send_below = 64;   // tokens per sequence: a replica with less sends
  double take_above = 256;  // a replica with more receives; at least twice send_below, or sequences move back and forth
};

struct MovePair {
  int32_t from = -1, to = -1;
  bool operator==(const MovePair&) const = default;
};

// Free KV tokens per sequence; a debt (below 0) is not divided. Ours: a divided debt would shrink with the number of
// sequences, and the replica with the longest queue would be the freest.
double Freeness(int64_t free_kv_tokens, int32_t sequences);
// Freeness per running sequence.
double FreenessOf(const ReplicaView& replica);

// Pairs the least free with the freest, and so on; each replica is in at most one pair, and a pair moves one sequence.
// `draining`: [replica] whether all its sequences must leave; empty: none. A draining replica sends to any replica with
// room for a sequence, however little. A replica that is not ready receives none. Only running sequences count: a
// replica without any sends none.
std::vector<MovePair> PairReplicas(std::span<const ReplicaView> replicas, const std::vector<bool>& draining,
                                   const RebalanceOptions& options = {});

// A running sequence that may be chosen to move.
struct MovableSequence {
  uint64_t handle = 0;
  int32_t priority = 0;  // lower runs first
  int64_t tokens = 0;    // with KV, including the rest of its prompt
};
// The index of the sequence of lowest priority among those that fit into `room_tokens`, and of these the shortest,
// which is cheapest to move; -1: none.
int32_t ChooseToMove(std::span<const MovableSequence> sequences, int64_t room_tokens);

}  // namespace tactus::fleet
