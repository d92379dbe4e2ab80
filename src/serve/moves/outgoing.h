// Moves one sequence to another replica: sends its KV in rounds while it runs, then pauses it, sends the rest, and ends
// it here. After any failure the sequence continues here. Blocks; any thread.
#pragma once

#include <memory>
#include <string>

#include "serve/calls/generation.h"
#include "serve/moves/fleet_peer.h"
#include "tactus/migration.h"

namespace tactus::serve {

constexpr int64_t kMessageBytes = int64_t{1} << 20;  // KV bytes in one message; one block if that is larger

// The result of a move.
struct Moved {
  std::string ticket;
  int64_t bytes = 0, blocks = 0;
  int32_t rounds = 0;        // before the pause
  DurationNs paused_ns = 0;  // from the pause to the answer that the sequence has arrived
};

// `timeout_ns`: the limit for each engine call and each message. kNotFound: the request ended first. kUnavailable,
// kUnauthenticated, kDeadlineExceeded: the other replica accepts no sequences; another code: it does not accept this
// one.
Result<Moved> MoveAway(Generation& generation, MigrationPort& port, FleetPeer& peer, DurationNs timeout_ns,
                       Clock& clock);

}  // namespace tactus::serve
