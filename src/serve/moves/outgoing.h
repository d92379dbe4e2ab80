// One sequence on its way to another replica: its KV in rounds while it goes on, then what is left while it is paused,
// then its end here. Whatever goes wrong, it goes on here. Blocks; any thread.
#pragma once

#include <memory>
#include <string>

#include "serve/generation.h"
#include "serve/moves/fleet_peer.h"
#include "tactus/migration.h"

namespace tactus::serve {

constexpr int64_t kMessageBytes = int64_t{1} << 20;  // of KV in one message, or one block where that is larger

// What became of it.
struct Moved {
  std::string ticket;
  int64_t bytes = 0, blocks = 0;
  int32_t rounds = 0;        // before the pause
  DurationNs paused_ns = 0;  // from its pause to the answer that it had arrived
};

// `timeout_ns`: that the engine and each message may take. kNotFound: it ended first. kUnavailable, kUnauthenticated,
// kDeadlineExceeded: the other one takes no sequence, whichever it is; another code: not this one.
Result<Moved> MoveAway(Generation& generation, MigrationPort& port, FleetPeer& peer, DurationNs timeout_ns,
                       Clock& clock);

}  // namespace tactus::serve
