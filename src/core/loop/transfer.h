// What the loop is asked by whoever moves KV in and out, of sequences that go to other engines or come from there, and
// of prompts that are kept on disk; and what it answers. Plain data.
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

using ImportId = uint64_t;  // host blocks that are reserved for one sequence, of one loop; 0: none

// A sequence as it stands between two of its steps, but for its KV. Times are of the loop's clock.
struct SequenceStanding {
  std::shared_ptr<const Request> request;
  std::vector<TokenId> output;  // generated so far; empty where tokens have no ids
  int32_t generated = 0;        // so many
  int32_t computed_tokens = 0;  // leading positions whose K and V it holds; 0: it waits
  TimeNs arrival_ns = 0;
  TimeNs scheduled_ns = 0;    // 0: never
  TimeNs first_token_ns = 0;  // 0: none yet
  TimeNs last_token_ns = 0;   // its arrival where none came
  DurationNs longest_gap_ns = 0;
  TimeNs longest_gap_end_ns = 0;
  int32_t late_gaps = 0;
  int32_t cached_tokens = 0, preemptions = 0, recomputed_tokens = 0;
};

// What a sequence brings that has run elsewhere. Its first standing.computed_tokens positions lie in the host blocks of
// `import`, in order.
struct ImportedSequence {
  SequenceStanding standing;  // `request` may be null: the arrival has it
  ImportId import = 0;
  std::vector<Hash128> generated_keys;  // of full blocks beyond the prompt's; empty where nothing is shared
};

enum class TransferKind : uint8_t {
  kRead,     // the bytes of full blocks that are computed
  kPause,    // it is not planned from now on; answered when no step in flight uses it, with its standing
  kResume,   // it goes on here
  kLeave,    // it ends here, as migrated
  kReserve,  // host blocks; answered when they may be written
  kDrop,     // they are free again
  // For prompts on disk (engine/prompt_cache.h).
  kFetched,      // the leading blocks that a request waits for are in host blocks, or do not come: it may start
  kReadEntered,  // the bytes of blocks that are new in the prefix cache; answered when there are any
  kWithdraw,     // a kReserve that still waits: it is answered with kResourceExhausted
};

struct TransferAnswer {
  Status status;
  SequenceStanding standing;         // kPause
  std::vector<std::byte> bytes;      // kRead: of blocks [first_block, first_block + blocks); kReadEntered: of keys
  std::vector<Hash128> keys;         // kReadEntered
  int32_t blocks = 0;                // that were read; 0: none is there yet
  bool more = false;                 // kReadEntered: the look ended before the list did, and may go on
  ImportId import = 0;               // kReserve
  std::vector<BlockId> host_blocks;  // kReserve: those that were added
};

struct TransferCommand {
  TransferKind kind = TransferKind::kRead;
  // Of a request with one choice; kDrop: none. kReserve: 0, or the request that waits for its KV, with which it waits
  // until so many are free.
  RequestHandle handle = 0;
  ImportId import = 0;                // kReserve: 0 begins one
  int32_t first_block = 0;            // kRead; of a paused sequence also the last, partial one
  int32_t blocks = 0;                 // kRead: at most so many; kReserve: so many more; kFetched: so many are there
  CacheEnd end = CacheEnd::kUnknown;  // kFetched: why no more than these
  std::function<bool(const Hash128& key)> wanted;  // kReadEntered: of which; on the engine thread, must not block
  // Called once on the engine thread, unless the loop ends before; must not block. May be empty.
  std::function<void(TransferAnswer answer)> answer;
};

}  // namespace tactus::core
