// Commands to the loop, and its answers, for KV that moves in and out: of sequences migrated to or from other engines,
// and of prompts stored on disk. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "tactus/request.h"
#include "tactus/status.h"
#include "tactus/timeline.h"

namespace tactus::core {

using ImportId = uint64_t;  // of a reservation: host blocks of one loop, reserved for one sequence; 0: none

// A sequence's state between two of its steps, without its KV. Times by the loop's clock.
struct SequenceSnapshot {
  std::shared_ptr<const Request> request;
  std::vector<TokenId> output;  // generated so far; empty where tokens have no ids
  int32_t generated = 0;        // number of tokens in the output
  int32_t computed_tokens = 0;  // leading positions whose K and V it holds; 0: waiting
  TimeNs arrival_ns = 0;
  TimeNs scheduled_ns = 0;    // 0: never
  TimeNs first_token_ns = 0;  // 0: none yet
  TimeNs last_token_ns = 0;   // its arrival if it has none
  DurationNs longest_gap_ns = 0;
  TimeNs longest_gap_end_ns = 0;
  int32_t late_gaps = 0;
  int32_t cached_tokens = 0, preemptions = 0, recomputed_tokens = 0;
};

// The state of a sequence migrated in. The KV of its first snapshot.computed_tokens positions is in the host blocks of
// `import`, in order.
struct ImportedSequence {
  SequenceSnapshot snapshot;  // `request` may be null: the PreparedRequest has it
  ImportId import = 0;
  std::vector<Hash128> generated_keys;  // of full blocks after the prompt's; empty: no sharing
};

enum class TransferKind : uint8_t {
  kRead,     // read the bytes of computed full blocks
  kPause,    // stop planning the sequence; answered with its snapshot when no step in flight uses it
  kResume,   // continue a paused sequence
  kLeave,    // end a paused sequence as migrated
  kReserve,  // reserve host blocks; answered when they may be written
  kDrop,     // free a reservation
  // For prompts on disk (engine/prompt_cache.h).
  kFetched,      // the leading blocks that a request waits for are in host blocks, or unavailable: it may start
  kReadEntered,  // read the bytes of blocks new in the prefix cache; answered when there are any
  kWithdraw,     // cancel a waiting kReserve, which is answered with kResourceExhausted
};

struct TransferAnswer {
  Status status;
  SequenceSnapshot snapshot;         // kPause
  std::vector<std::byte> bytes;      // kRead: blocks [first_block, first_block + blocks); kReadEntered: those of `keys`
  std::vector<Hash128> keys;         // kReadEntered
  int32_t blocks = 0;                // number of blocks read; 0: none is available yet
  bool more = false;                 // kReadEntered: stopped before the end of the list; call again
  ImportId import = 0;               // kReserve
  std::vector<BlockId> host_blocks;  // kReserve: the added blocks
};

struct TransferCommand {
  TransferKind kind = TransferKind::kRead;
  // A single-choice request; kDrop: 0. kReserve: 0, or a request that waits for its KV: the command then waits until
  // `blocks` host blocks are free.
  RequestHandle handle = 0;
  ImportId import = 0;                // kReserve: 0 creates a reservation
  int32_t first_block = 0;            // kRead; of a paused sequence the last, partial block may be read too
  int32_t blocks = 0;                 // kRead: most blocks to read; kReserve: blocks to add; kFetched: blocks fetched
  CacheEnd end = CacheEnd::kUnknown;  // kFetched: why no more blocks
  std::function<bool(const Hash128& key)> wanted;  // kReadEntered: filter; called on the engine thread, must not block
  // Called once on the engine thread, unless the loop ends before; must not block. May be empty.
  std::function<void(TransferAnswer answer)> answer;
};

}  // namespace tactus::core
