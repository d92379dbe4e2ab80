// Which replicas send sequences that run to which others (Llumnix, OSDI 2024, 4.4): from those with little room to
// those with much, and away from those that are drained. Freeness is the KV memory that is left when all that wait have
// theirs, over the sequences that run, which will want more of it: how many tokens each may still grow by. A prompt
// that waits for memory which lies about in several replicas makes its replica's negative, so that others move away and
// make room (defragmentation). Pure functions; the router and the simulator ask the same one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fleet/balance/balancer.h"

namespace tactus::fleet {

struct RebalanceOptions {
  double send_below = 64;   // tokens per sequence: a replica with less sends
  double take_above = 256;  // one with more takes; at least twice send_below, or sequences go to and fro
};

struct MovePair {
  int32_t from = -1, to = -1;
  bool operator==(const MovePair&) const = default;
};

// Free KV tokens per sequence; a debt (below 0) is not divided. Ours: divided, a debt would be smaller the more
// sequences share it, and the replica with the longest queue would be the freest.
double Freeness(int64_t free_kv_tokens, int32_t sequences);
// Tokens per running sequence.
double FreenessOf(const ReplicaView& replica);

// The least free with the freest, and so on; each replica is in one pair at most, and moves one sequence for it.
// `draining`: of each replica, whether everything is to leave it; empty: none. Such a one sends to whoever has room for
// a sequence, however little. A replica that is not ready takes none. Only sequences that run are counted: who has none
// sends none.
std::vector<MovePair> PairReplicas(std::span<const ReplicaView> replicas, const std::vector<bool>& draining,
                                   const RebalanceOptions& options = {});

// A sequence that runs, to choose whom to move.
struct MovableSequence {
  uint64_t handle = 0;
  int32_t priority = 0;  // lower runs first
  int64_t tokens = 0;    // whose KV it holds, or will once its prompt is computed
};
// The sequence of least priority among those that fit the room at the other end, and of these the shortest, which costs
// least to move: its index, or -1.
int32_t ChooseToMove(std::span<const MovableSequence> sequences, int64_t room_tokens);

}  // namespace tactus::fleet
